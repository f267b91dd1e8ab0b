// SPDX-License-Identifier: Apache-2.0
// One collective call as the verifier sees it: what every rank has before, and must have afterwards.
#pragma once
#include <cstddef>
#include <vector>

#include "kernels/algorithms/table.hpp"

namespace rondo::kernels {

inline constexpr int kMaxPlannedRanks = 64;  // sets of ranks are 64-bit masks

struct Problem {
  Pattern pattern{};
  int size = 1;
  int root = 0;
  std::size_t count = 0;  // as in Work
  bool in_place = false;  // as the collective allows it: see input_at and output_at
  // Variable counts, or empty: counts[i][j] elements of rank i's input go to rank j (all_to_all); otherwise
  // counts[i][0] are rank i's block. Blocks are packed in rank order.
  std::vector<std::vector<std::size_t>> counts{};
};

// What a Work of the problem points to.
struct RankBlocks {
  std::vector<std::size_t> send_counts, send_offsets, recv_counts, recv_offsets;
};
RankBlocks blocks_of(const Problem& problem, int rank);
Work work_of(const Problem& problem, int rank, const RankBlocks& blocks);

// Elements of a rank's buffers; 0 where the collective does not use the buffer on this rank.
std::size_t input_count(const Problem& problem, const Work& work);
std::size_t output_count(const Problem& problem, const Work& work);

// In place: where input and output begin in their common memory. One of them is 0.
struct Overlay {
  std::size_t input_at = 0, output_at = 0;
};
bool is_overlaid(const Problem& problem, const Work& work);  // the rank has both buffers, and in place
Overlay overlay_of(const Problem& problem, const Work& work);

// Where an output element must come from: the same element of every rank's input, or of one rank's.
struct Origin {
  std::size_t element = 0;  // of the source's input
  int rank = kNobody;       // kNobody: all ranks, reduced
};
Origin origin_of(const Problem& problem, const Work& work, std::size_t output_element);

}  // namespace rondo::kernels
