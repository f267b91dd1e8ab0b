// SPDX-License-Identifier: Apache-2.0
// How two ranks share what a call copies, by how long each took before.
#include "comm/node/ways/balance.hpp"

#include <cmath>
#include <utility>

#include "tests/support/catch.hpp"

using namespace rondo;
using comm::Balance;

namespace {

constexpr double kPart = 1.0 / Balance::kParts;

// Calls in which each copies a block and takes so long for it, and what is shifted as long as who does it takes.
std::pair<double, double> run(Balance& balance, double first_us, double second_us, int calls, bool costs = false) {
  std::pair<double, double> took;
  for (int call = 0; call < calls; ++call) {
    took = {first_us * (1 + balance.shift() * kPart), second_us * (1 - balance.shift() * kPart)};
    balance.took(took.first, took.second, costs);
  }
  return took;
}

}  // namespace

TEST_CASE("who takes longer copies less, until both take about as long") {
  for (const auto& [first, second] : {std::pair(100.0, 140.0), std::pair(7.0, 6.0), std::pair(3000.0, 2000.0)}) {
    Balance balance;
    const auto [first_took, second_took] = run(balance, first, second, 500);
    CAPTURE(first, second, first_took, second_took, balance.shift());
    CHECK(std::abs(first_took - second_took) < 0.06 * std::max(first_took, second_took));
    CHECK((balance.shift() > 0) == (first < second));
    const int settled = balance.shift();
    run(balance, first, second, 500);
    CHECK(balance.shift() == settled);
  }
}

TEST_CASE("cores that change places are followed") {
  Balance balance;
  run(balance, 100, 140, 300);
  const int before = balance.shift();
  run(balance, 140, 100, 600);
  CHECK(balance.shift() == -before);
}

TEST_CASE("a difference that is small, or of a few calls, changes nothing") {
  Balance small, rare;
  run(small, 100, 104, 1000);
  CHECK(small.shift() == 0);
  for (int round = 0; round < 10; ++round) {
    run(rare, 100, 10'000, 3);
    run(rare, 100, 100, 100);
    run(rare, 10'000, 100, 3);
    run(rare, 100, 100, 100);
    CHECK(rare.shift() == 0);
  }
}

TEST_CASE("what costs a call of the kernel more begins with a larger difference") {
  Balance costly, cheap;
  run(costly, 100, 109, 1000, true);
  run(cheap, 100, 109, 1000);
  CHECK(costly.shift() == 0);
  CHECK(cheap.shift() > 0);
  run(costly, 100, 120, 1000, true);
  CHECK(costly.shift() > 0);
}

TEST_CASE("nobody does more than half a block for the other") {
  Balance balance;
  run(balance, 0, 1000, 10'000);
  CHECK(balance.shift() == Balance::kParts / 2);
}
