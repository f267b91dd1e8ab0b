// SPDX-License-Identifier: Apache-2.0
// The _v forms of few bytes: blocks of different lengths, some of them empty, at lengths on both sides of every limit.
#include <rondo/communicator.hpp>

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/few_cores.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;

namespace {

using Counts = std::vector<std::size_t>;
using Values = std::vector<std::int32_t>;

// The at-th element of what `from` has for `to`.
std::int32_t value(int from, int to, std::size_t at) {
  return static_cast<std::int32_t>(at * 31 % 1009) + 10'000 * from + 1'000'000 * to;
}
void append(Values& to, int from, int reader, std::size_t count) {
  for (std::size_t at = 0; at < count; ++at) to.push_back(value(from, reader, at));
}
std::size_t sum(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }

// Some blocks are empty. `turned` tells such sets of lengths apart; the first one is as long in all of them, so that a
// rank has to look at those of others to know one from another.
std::size_t length(int world, std::size_t unit, int at, int turned) {
  return at == 0 ? unit : unit * static_cast<std::size_t>((2 * at + turned) % (world + 1));
}

void expect(const Values& got, const Values& wanted, const std::string& what) {
  if (got != wanted) throw std::runtime_error(what);
}

// Every _v form, with the same lengths again and then with others of the same shape.
void every_form(Communicator& comm, std::size_t unit, int turned) {
  const int world = comm.world_size(), rank = comm.rank(), root = turned % world;
  const auto me = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(world);
  const auto says = [&](const char* name) {
    return fmt::format("{} of blocks of {}, turned by {}, on {} ranks", name, unit, turned, world);
  };
  Counts counts(n), to(n), from(n);
  Values gathered, mine, spread, given, exchanged;
  for (int r = 0; r < world; ++r) {
    counts[static_cast<std::size_t>(r)] = length(world, unit, r, turned);
    to[static_cast<std::size_t>(r)] = length(world, unit, rank + 2 * r, turned);
    from[static_cast<std::size_t>(r)] = length(world, unit, r + 2 * rank, turned);
    append(gathered, r, 0, counts[static_cast<std::size_t>(r)]);
    append(spread, root, r, counts[static_cast<std::size_t>(r)]);
    append(given, rank, r, to[static_cast<std::size_t>(r)]);
    append(exchanged, r, rank, from[static_cast<std::size_t>(r)]);
  }
  append(mine, rank, 0, counts[me]);
  Values wanted;
  append(wanted, root, rank, counts[me]);

  Values all(sum(counts), -1), own(counts[me], -1), got(sum(from), -1);
  comm.all_gather_v(std::span<const std::int32_t>(mine), std::span(all), counts);
  expect(all, gathered, says("all_gather_v"));
  all.assign(sum(counts), -1);
  comm.gather_v(std::span<const std::int32_t>(mine), std::span(all), counts, root);
  if (rank == root) expect(all, gathered, says("gather_v"));
  comm.scatter_v(std::span<const std::int32_t>(spread), std::span(own), counts, root);
  expect(own, wanted, says("scatter_v"));
  comm.all_to_all_v(std::span<const std::int32_t>(given), to, std::span(got), from);
  expect(got, exchanged, says("all_to_all_v"));
}

}  // namespace

TEST_CASE("blocks of different lengths come with the arrivals, or go another way, and are the same") {
  const int world = GENERATE(1, 2, 3, 4);
  const test::FewCores cores(GENERATE(std::size_t{1}, test::FewCores::kAll));
  const std::size_t unit = GENERATE(1u, 5u, 12u, 60u, 300u, 1000u, 1400u, 4000u, 9000u);
  test::on_ranks(world, [&](Communicator& comm) {
    for (const int turned : {0, 0, 1, 2, 1}) every_form(comm, unit, turned);
  });
}

TEST_CASE("what a rank of many brings for all of them lies in the ring") {
  test::on_ranks(66, [](Communicator& comm) { every_form(comm, 12, 1); });
}
