// SPDX-License-Identifier: Apache-2.0
// The algorithms as data: one row each, whatever the Primitives. Every algorithm is deterministic (all ranks get the
// same bits, and again the next time), works for any world size, root and count, and in place where the collective
// allows it; the verifier holds every row to that.
#pragma once
#include <array>
#include <string_view>

#include <rondo/extent.hpp>

#include "kernels/algorithms/barrier.hpp"
#include "kernels/algorithms/direct.hpp"
#include "kernels/algorithms/pairwise.hpp"
#include "kernels/algorithms/recursive.hpp"
#include "kernels/algorithms/ring.hpp"
#include "kernels/algorithms/star.hpp"
#include "kernels/algorithms/tree.hpp"

namespace rondo::kernels {

// What an algorithm computes. Forms with variable counts are the same pattern with counts in Work.
enum class Pattern : unsigned char {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  barrier
};
inline constexpr int kPatternCount = 9;

// What verifier, kernels and tests know of the buffers comes from here alone.
struct PatternRow {
  Pattern pattern;
  std::string_view name;
  Extent send, recv;  // size of the input and of the output; world: blocks, which may be of different lengths
  bool send_at_root, recv_at_root;  // the buffer is used at the root alone
  bool reduces;

  constexpr bool rooted() const { return send_at_root || recv_at_root; }
  constexpr bool sends_blocks() const { return send == Extent::world; }
  constexpr bool receives_blocks() const { return recv == Extent::world; }
  constexpr bool has_block_per_pair() const { return sends_blocks() && receives_blocks(); }  // not in place
};
inline constexpr std::array<PatternRow, kPatternCount> kPatterns{{
    {Pattern::all_reduce, "all_reduce", Extent::one, Extent::one, false, false, true},
    {Pattern::reduce, "reduce", Extent::one, Extent::one, false, true, true},
    {Pattern::broadcast, "broadcast", Extent::one, Extent::one, true, false, false},
    {Pattern::all_gather, "all_gather", Extent::one, Extent::world, false, false, false},
    {Pattern::reduce_scatter, "reduce_scatter", Extent::world, Extent::one, false, false, true},
    {Pattern::all_to_all, "all_to_all", Extent::world, Extent::world, false, false, false},
    {Pattern::gather, "gather", Extent::one, Extent::world, false, true, false},
    {Pattern::scatter, "scatter", Extent::world, Extent::one, true, false, false},
    {Pattern::barrier, "barrier", Extent::none, Extent::none, false, false, false},
}};
constexpr const PatternRow& row_of(Pattern pattern) { return kPatterns[static_cast<std::size_t>(pattern)]; }
static_assert(
    [] {
      for (std::size_t i = 0; i < kPatterns.size(); ++i) {
        if (static_cast<std::size_t>(kPatterns[i].pattern) != i || kPatterns[i].name.empty()) return false;
      }
      return true;
    }(),
    "a row for each Pattern, in its order");

// The patterns of a kind, one bit each: kernels cannot read the table.
constexpr unsigned patterns_that(bool (*are_such)(const PatternRow&)) {
  unsigned bits = 0;
  for (const PatternRow& row : kPatterns) bits |= are_such(row) ? 1U << static_cast<unsigned>(row.pattern) : 0U;
  return bits;
}

struct AlgorithmRow {
  Pattern pattern;
  std::string_view name;
  bool canonical_order;  // reduces by the left fold in rank order, or does not reduce: Determinism::reproducible
  bool variable_counts;  // takes counts and offsets in Work
  std::size_t (*scratch_count)(const Work& work, std::size_t chunk_capacity);  // elements of Buffer::scratch
  // Not for devices: it moves neighbouring blocks as one message, so that Work must hold whole blocks; or it is for
  // ranks that share cores.
  bool host_only = false;
};

constexpr std::size_t no_scratch(const Work&, std::size_t) { return 0; }

template <Primitives P>
struct Algorithm {
  AlgorithmRow row;
  void (*run)(P&, const Work&);
};

inline constexpr bool kAnyOrder = false;
inline constexpr bool kCanonical = true;
inline constexpr bool kEqual = false;
inline constexpr bool kVariable = true;
inline constexpr bool kHostOnly = true;

template <Primitives P>
inline constexpr auto kAlgorithms = std::to_array<Algorithm<P>>({
    {{Pattern::all_reduce, "ring", kAnyOrder, kEqual, no_scratch}, ring_all_reduce<P>},
    {{Pattern::all_reduce, "tree", kAnyOrder, kEqual, tree_scratch_count}, tree_all_reduce<P>},
    {{Pattern::all_reduce, "recursive_doubling", kAnyOrder, kEqual, no_scratch}, recursive_doubling_all_reduce<P>},
    {{Pattern::all_reduce, "halving_doubling", kAnyOrder, kEqual, no_scratch}, halving_doubling_all_reduce<P>},
    {{Pattern::all_reduce, "one_shot", kCanonical, kEqual, no_scratch}, one_shot_all_reduce<P>},
    {{Pattern::all_reduce, "two_shot", kCanonical, kEqual, no_scratch}, two_shot_all_reduce<P>},
    {{Pattern::all_reduce, "star", kCanonical, kEqual, no_scratch, kHostOnly}, star_all_reduce<P>},
    {{Pattern::reduce, "ring", kAnyOrder, kEqual, no_scratch}, ring_reduce<P>},
    {{Pattern::reduce, "tree", kAnyOrder, kEqual, tree_scratch_count}, tree_reduce<P>},
    {{Pattern::reduce, "direct", kCanonical, kEqual, no_scratch}, direct_reduce<P>},
    {{Pattern::broadcast, "ring", kCanonical, kEqual, no_scratch}, ring_broadcast<P>},
    {{Pattern::broadcast, "tree", kCanonical, kEqual, no_scratch}, tree_broadcast<P>},
    {{Pattern::broadcast, "direct", kCanonical, kEqual, no_scratch, kHostOnly}, direct_broadcast<P>},
    {{Pattern::all_gather, "ring", kCanonical, kVariable, no_scratch}, ring_all_gather<P>},
    {{Pattern::all_gather, "pairwise", kCanonical, kVariable, no_scratch}, pairwise_all_gather<P>},
    {{Pattern::all_gather, "tree", kCanonical, kEqual, no_scratch, kHostOnly}, tree_all_gather<P>},
    {{Pattern::all_gather, "star", kCanonical, kEqual, no_scratch, kHostOnly}, star_all_gather<P>},
    {{Pattern::reduce_scatter, "ring", kAnyOrder, kEqual, no_scratch}, ring_reduce_scatter<P>},
    {{Pattern::reduce_scatter, "pairwise", kAnyOrder, kEqual, no_scratch}, pairwise_reduce_scatter<P>},
    {{Pattern::reduce_scatter, "tree", kAnyOrder, kEqual, tree_reduce_scatter_scratch_count}, tree_reduce_scatter<P>},
    {{Pattern::reduce_scatter, "direct", kCanonical, kEqual, no_scratch}, direct_reduce_scatter<P>},
    {{Pattern::reduce_scatter, "star", kCanonical, kEqual, star_reduce_scatter_scratch_count}, star_reduce_scatter<P>},
    {{Pattern::all_to_all, "pairwise", kCanonical, kVariable, no_scratch}, pairwise_all_to_all<P>},
    {{Pattern::all_to_all, "star", kCanonical, kEqual, star_all_to_all_scratch_count, kHostOnly}, star_all_to_all<P>},
    {{Pattern::gather, "direct", kCanonical, kVariable, no_scratch}, direct_gather<P>},
    {{Pattern::scatter, "direct", kCanonical, kVariable, no_scratch}, direct_scatter<P>},
    {{Pattern::barrier, "dissemination", kCanonical, kEqual, barrier_scratch_count}, dissemination_barrier<P>},
    {{Pattern::barrier, "tree", kCanonical, kEqual, barrier_scratch_count}, tree_barrier<P>},
    {{Pattern::barrier, "star", kCanonical, kEqual, barrier_scratch_count, kHostOnly}, star_barrier<P>},
});

// Primitives that do nothing: to read the rows without choosing any.
struct NoPrimitives {
  void run(std::span<const Move>) {}
  void fold(const Fold&) {}
  std::size_t chunk_capacity() const { return 1; }
};
inline constexpr int kAlgorithmCount = static_cast<int>(std::size(kAlgorithms<NoPrimitives>));
constexpr const AlgorithmRow& algorithm_row(int id) {
  return kAlgorithms<NoPrimitives>[static_cast<std::size_t>(id)].row;
}

inline constexpr int kNoAlgorithm = -1;
constexpr int find_algorithm(Pattern pattern, std::string_view name) {
  for (int id = 0; id < kAlgorithmCount; ++id) {
    if (algorithm_row(id).pattern == pattern && algorithm_row(id).name == name) return id;
  }
  return kNoAlgorithm;
}

// A world of one, and no barrier: the result is the input, touched first and last like any other.
template <Primitives P>
constexpr void run_alone(P& p, bool reduces, const Work& work) {
  const Range from = work.send_block(0);
  const Range to = work.recv_block(0);
  const Move move{.count = work.recv_counts.empty() ? from.count : to.count,
                  .local = input(from.offset),
                  .store = output(to.offset),
                  .complete = reduces};
  p.run(std::span(&move, 1));
}

template <Primitives P>
void run_algorithm(int id, P& p, const Work& work) {
  if (work.size != 1) return kAlgorithms<P>[static_cast<std::size_t>(id)].run(p, work);
  const PatternRow& row = row_of(algorithm_row(id).pattern);
  if (row.recv != Extent::none) run_alone(p, row.reduces, work);
}

}  // namespace rondo::kernels
