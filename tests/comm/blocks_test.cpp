// SPDX-License-Identifier: Apache-2.0
#include "comm/call/blocks.hpp"

#include "tests/support/catch.hpp"

using namespace rondo;
using comm::cache_demand;

namespace {

constexpr std::size_t kLarger = 2400;  // bytes of a rank's larger buffer
constexpr int kRanks = 4;

std::size_t demand(Collective collective, bool in_place = false) {
  static std::byte buffers[2 * kLarger];
  return cache_demand({.collective = collective, .send = buffers, .recv = buffers + (in_place ? 0 : kLarger)}, kLarger,
                      kRanks);
}

}  // namespace

TEST_CASE("in place a rank's block of one buffer is the other") {
  const std::size_t counts[] = {3, 5, 7, 9};
  const auto distance = [&](Collective collective) {
    const CollectiveRow& row = row_of(collective);
    Call call{.collective = collective, .count = 10};
    if (row.send == Extent::counts) call.send_counts = counts;
    if (row.recv == Extent::counts) call.recv_counts = counts;
    return comm::in_place_distance(call, 2);
  };
  CHECK(distance(Collective::all_reduce) == 0);
  CHECK(distance(Collective::reduce) == 0);
  CHECK(distance(Collective::broadcast) == 0);
  CHECK(distance(Collective::reduce_scatter) == 20);
  CHECK(distance(Collective::scatter) == 20);
  CHECK(distance(Collective::scatter_v) == 8);
  CHECK(distance(Collective::all_gather) == -20);
  CHECK(distance(Collective::gather) == -20);
  CHECK(distance(Collective::all_gather_v) == -8);
  CHECK(distance(Collective::gather_v) == -8);
}

TEST_CASE("a call wants room for what its ranks read and for a third of what they write") {
  CHECK(demand(Collective::all_reduce) == 4 * 2400 + 4 * 800);
  CHECK(demand(Collective::all_reduce, true) == 4 * 2400);
  CHECK(demand(Collective::reduce) == 4 * 2400 + 800);
  CHECK(demand(Collective::reduce, true) == 4 * 2400 + 800);  // the others have sent from elsewhere
  CHECK(demand(Collective::broadcast, true) == 2400 + 4 * 800);
  CHECK(demand(Collective::all_gather) == 4 * 600 + 4 * 800);
  CHECK(demand(Collective::reduce_scatter) == 4 * 2400 + 4 * 200);
  CHECK(demand(Collective::scatter) == 2400 + 4 * 200);
  CHECK(demand(Collective::gather) == 4 * 600 + 800);
  CHECK(demand(Collective::barrier) == 0);
}

TEST_CASE("what lies in place wants no more room for what it writes, whichever rank's block it is") {
  static std::byte buffers[2 * kLarger];
  const auto demand_of = [](Collective collective, std::byte* send, std::byte* recv) {
    return cache_demand({.collective = collective, .send = send, .recv = recv}, kLarger, kRanks);
  };
  constexpr std::size_t kBlock = kLarger / kRanks;
  std::byte* const all = buffers + kBlock;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    INFO("rank " << rank);
    CHECK(demand_of(Collective::all_gather, all + rank * kBlock, all) == 4 * 600);
    CHECK(demand_of(Collective::all_gather_v, all + rank * kBlock, all) == 4 * 600);
    CHECK(demand_of(Collective::reduce_scatter, all, all + rank * kBlock) == 4 * 2400);
  }
  for (std::byte* const beside : {all - kBlock, all + kLarger}) {
    CHECK(demand_of(Collective::all_gather, beside, all) == 4 * 600 + 4 * 800);
    CHECK(demand_of(Collective::reduce_scatter, all, beside) == 4 * 2400 + 4 * 200);
  }
}
