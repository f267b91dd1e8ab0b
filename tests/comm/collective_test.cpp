// SPDX-License-Identifier: Apache-2.0
#include <rondo/collective.hpp>

#include <vector>

#include "comm/call/shape.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;

TEST_CASE("the collective table is in the order of the enum") {
  for (int i = 0; i < kCollectiveCount; ++i) {
    CHECK(static_cast<int>(collective_table()[static_cast<std::size_t>(i)].collective) == i);
  }
}

TEST_CASE("algorithms know of a collective's buffers what its row says") {
  const std::size_t counts[] = {1, 2};
  const auto in_blocks = [](Extent extent) { return extent == Extent::counts ? Extent::world : extent; };
  for (const CollectiveRow& row : collective_table()) {
    if (row.is_message()) continue;
    CAPTURE(row.name);
    Call call{.collective = row.collective, .count = 1};
    if (row.send == Extent::counts) call.send_counts = counts;
    if (row.recv == Extent::counts) call.recv_counts = counts;
    const kernels::PatternRow& pattern = kernels::row_of(comm::shape_of(call, 2).pattern);
    CHECK(pattern.send == in_blocks(row.send));
    CHECK(pattern.recv == in_blocks(row.recv));
    CHECK(pattern.send_at_root == row.send_at_root);
    CHECK(pattern.recv_at_root == row.recv_at_root);
    CHECK(pattern.rooted() == row.rooted);
    CHECK(pattern.reduces == row.reduces);
    CHECK(pattern.has_block_per_pair() == row.has_block_per_pair());
  }
}

TEST_CASE("what a row says of its buffers decides what may be done with them") {
  const auto those = [](auto are_such) {
    std::vector<Collective> found;
    for (const CollectiveRow& row : collective_table()) {
      if (are_such(row)) found.push_back(row.collective);
    }
    return found;
  };
  using enum Collective;
  using List = std::vector<Collective>;
  CHECK(those([](const auto& row) { return row.is_message(); }) == List{send, recv});
  CHECK(those([](const auto& row) { return row.has_block_per_pair(); }) == List{all_to_all, all_to_all_v});
  CHECK(those([](const auto& row) { return row.has_own_counts(); }) == List{all_to_all_v});
  CHECK(those([](const auto& row) { return row.has_common_counts(); }) == List{all_gather_v, gather_v, scatter_v});
}
