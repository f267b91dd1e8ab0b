// SPDX-License-Identifier: Apache-2.0
// What a tuned value decides, and that others have no say in it.
#include "comm/node/policy/chooser.hpp"

#include "tests/support/catch.hpp"

using namespace rondo;
using comm::Chooser;
using comm::RingSum;

namespace {

constexpr std::size_t M = 1 << 20;

Chooser chooser(int ranks, int cores, const comm::Tuning& tuning) {
  const bool crowded = ranks > cores;
  return {{.ranks = ranks, .cores = cores, .crowded = crowded, .ring = comm::lay_out_ring(6 * M, ranks, crowded)},
          tuning};
}

Call sum(Collective collective, std::size_t bytes) {
  static std::byte here{};  // nobody looks at it
  return {.collective = collective, .send = &here, .recv = &here, .count = bytes, .root = 0};
}

}  // namespace

TEST_CASE("poured_bytes alone says how long a reduce is poured into the root") {
  comm::Tuning tuning;
  tuning.cached_bytes = 0;
  tuning.poured_bytes = 2 * M;
  const Chooser two = chooser(2, 2, tuning);
  CHECK(two.sum_of(sum(Collective::reduce, 2 * M)) == RingSum::whole);
  CHECK(two.sum_of(sum(Collective::reduce, 2 * M + 1)) == RingSum::parts);
}

TEST_CASE("cold_bytes alone says which sums in place of ranks that share cores go past the caches") {
  comm::Tuning tuning;
  tuning.cached_bytes = 0;
  tuning.streaming_bytes = M;
  tuning.cold_bytes = 64 * M;
  const Chooser four = chooser(4, 2, tuning);
  const auto stores = [&](std::size_t bytes) {
    const Call call = sum(Collective::all_reduce, bytes);
    return four.stores({.call = call, .larger = bytes, .longest = bytes}).result;
  };
  CHECK(stores(16 * M - 1) == kernels::Stores::plain);
  CHECK(stores(16 * M) == kernels::Stores::streaming);
}
