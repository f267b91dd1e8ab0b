// SPDX-License-Identifier: Apache-2.0
// Which algorithm to take, as data: the first row of the pattern that fits wins. All ranks choose by the same values.
// The defaults are for links with latency; a host that can read its peers' memory has better ways of its own.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/algorithms/table.hpp"

namespace rondo::kernels {

struct TunerRow {
  Pattern pattern;
  bool canonical;         // for calls that need the canonical order; the others may use any row
  std::size_t max_bytes;  // of the larger buffer of a rank
  int max_world_size;
  std::string_view algorithm;
};

inline constexpr std::size_t kAnyBytes = SIZE_MAX;
inline constexpr int kAnyWorld = INT32_MAX;
inline constexpr std::size_t kKiB = 1024;

inline constexpr TunerRow kTuner[] = {
    {Pattern::all_reduce, kAnyOrder, 32 * kKiB, 2, "recursive_doubling"},
    {Pattern::all_reduce, kAnyOrder, kAnyBytes, 2, "halving_doubling"},
    {Pattern::all_reduce, kAnyOrder, 16 * kKiB, kAnyWorld, "recursive_doubling"},
    {Pattern::all_reduce, kAnyOrder, 256 * kKiB, kAnyWorld, "halving_doubling"},
    {Pattern::all_reduce, kAnyOrder, kAnyBytes, kAnyWorld, "ring"},
    {Pattern::all_reduce, kCanonical, 4 * kKiB, 8, "one_shot"},
    {Pattern::all_reduce, kCanonical, kAnyBytes, kAnyWorld, "two_shot"},
    {Pattern::reduce, kAnyOrder, 64 * kKiB, kAnyWorld, "tree"},
    {Pattern::reduce, kAnyOrder, kAnyBytes, kAnyWorld, "ring"},
    {Pattern::reduce, kCanonical, kAnyBytes, kAnyWorld, "direct"},
    {Pattern::broadcast, kCanonical, 64 * kKiB, kAnyWorld, "tree"},
    {Pattern::broadcast, kCanonical, kAnyBytes, kAnyWorld, "ring"},
    {Pattern::all_gather, kCanonical, 64 * kKiB, kAnyWorld, "pairwise"},
    {Pattern::all_gather, kCanonical, kAnyBytes, kAnyWorld, "ring"},
    {Pattern::reduce_scatter, kAnyOrder, 64 * kKiB, kAnyWorld, "pairwise"},
    {Pattern::reduce_scatter, kAnyOrder, kAnyBytes, kAnyWorld, "ring"},
    {Pattern::reduce_scatter, kCanonical, kAnyBytes, kAnyWorld, "direct"},
    {Pattern::all_to_all, kCanonical, kAnyBytes, kAnyWorld, "pairwise"},
    {Pattern::gather, kCanonical, kAnyBytes, kAnyWorld, "direct"},
    {Pattern::scatter, kCanonical, kAnyBytes, kAnyWorld, "direct"},
    {Pattern::barrier, kCanonical, kAnyBytes, kAnyWorld, "dissemination"},
};

// Tried before kTuner where ranks of one host outnumber its cores and meet over sockets: a message costs less by its
// bytes than by the rank that must be woken for it, so few messages count for more than short paths.
inline constexpr TunerRow kCrowdedTuner[] = {
    {Pattern::all_reduce, kCanonical, 256 * kKiB, 4, "star"},
    {Pattern::all_reduce, kCanonical, 16 * kKiB, 16, "star"},
    {Pattern::all_reduce, kAnyOrder, 128 * kKiB, kAnyWorld, "tree"},
    {Pattern::all_reduce, kAnyOrder, kAnyBytes, 4, "halving_doubling"},
    {Pattern::all_reduce, kAnyOrder, 1024 * kKiB, kAnyWorld, "tree"},
    {Pattern::reduce, kCanonical, 1024 * kKiB, 16, "direct"},
    {Pattern::reduce, kAnyOrder, 256 * kKiB, kAnyWorld, "tree"},
    {Pattern::broadcast, kCanonical, 16 * kKiB, 4, "direct"},
    {Pattern::broadcast, kCanonical, 4 * kKiB, 16, "direct"},
    {Pattern::broadcast, kCanonical, 256 * kKiB, kAnyWorld, "tree"},
    {Pattern::all_gather, kCanonical, 16 * kKiB, 16, "star"},
    {Pattern::all_gather, kCanonical, 16 * kKiB, kAnyWorld, "tree"},
    {Pattern::all_gather, kCanonical, 64 * kKiB, 4, "pairwise"},
    {Pattern::all_gather, kCanonical, 256 * kKiB, kAnyWorld, "tree"},
    {Pattern::reduce_scatter, kCanonical, 256 * kKiB, 16, "star"},
    {Pattern::reduce_scatter, kAnyOrder, 64 * kKiB, kAnyWorld, "tree"},
    {Pattern::all_to_all, kCanonical, 16 * kKiB, 4, "star"},
    {Pattern::all_to_all, kCanonical, kAnyBytes, 4, "pairwise"},
    {Pattern::all_to_all, kCanonical, 64 * kKiB, kAnyWorld, "star"},
    {Pattern::barrier, kCanonical, kAnyBytes, 16, "star"},
    {Pattern::barrier, kCanonical, kAnyBytes, kAnyWorld, "tree"},
};

// The id of the algorithm to run. Its row keeps canonical_order where `canonical` asks for it.
constexpr int choose_algorithm(Pattern pattern, std::size_t bytes, int world_size, bool canonical,
                               std::span<const TunerRow> rows = kTuner) {
  for (const TunerRow& row : rows) {
    const bool order_fits = row.canonical || !canonical;
    if (row.pattern == pattern && order_fits && bytes <= row.max_bytes && world_size <= row.max_world_size) {
      return find_algorithm(pattern, row.algorithm);
    }
  }
  return kNoAlgorithm;
}

consteval bool always_finds_one() {
  for (const PatternRow& row : kPatterns) {
    for (const bool canonical : {kAnyOrder, kCanonical}) {
      if (choose_algorithm(row.pattern, kAnyBytes, kAnyWorld, canonical) == kNoAlgorithm) return false;
    }
  }
  return true;
}
static_assert(always_finds_one(), "each pattern has a row for any size, any world and the canonical order");

}  // namespace rondo::kernels
