// SPDX-License-Identifier: Apache-2.0
// Ranks that should have the same and do not: those that most agree with, and the others.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <rondo/error.hpp>

namespace rondo {

struct Majority {
  std::vector<int> most;    // the largest group of equals, in order; of several such, that of the lowest rank
  std::vector<int> others;  // in order; empty: all are equal
  bool is_clear = false;    // no other group is as large
};

// Of these ranks, in order. same(a, b): an equivalence.
template <class Same>
Majority find_majority(const std::vector<int>& ranks, Same same) {
  std::vector<std::vector<int>> groups;
  for (const int rank : ranks) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return same(g.front(), rank); });
    if (group != groups.end()) {
      group->push_back(rank);
    } else {
      groups.push_back({rank});
    }
  }
  const auto is_smaller = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto largest = std::max_element(groups.begin(), groups.end(), is_smaller);
  Majority found;
  if (largest == groups.end()) return found;
  found.most = *largest;
  const auto as_large = [&](const auto& g) { return g.size() == found.most.size(); };
  found.is_clear = std::count_if(groups.begin(), groups.end(), as_large) == 1;
  for (const int rank : ranks) {
    if (!std::binary_search(found.most.begin(), found.most.end(), rank)) found.others.push_back(rank);
  }
  return found;
}

// The same of values by rank, from 0.
template <class Values>
Majority find_majority_of(const Values& values) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < values.size(); ++rank) ranks.push_back(static_cast<int>(rank));
  return find_majority(
      ranks, [&](int a, int b) { return values[static_cast<std::size_t>(a)] == values[static_cast<std::size_t>(b)]; });
}

// A sentence that compares two ranks blames one of them, and nobody knows which.
inline Error either_of(ErrorCode code, const std::string& sentence, int one, int other) {
  return {code, sentence, -1, {std::min(one, other), std::max(one, other)}};
}

// Of ranks that are not all equal: whom the others outvote, or else the first two that differ.
inline Error mismatch_of(const Majority& majority, const std::string& sentence) {
  if (!majority.is_clear)
    return either_of(ErrorCode::mismatch, sentence, majority.most.front(), majority.others.front());
  return {ErrorCode::mismatch, sentence, majority.others.front(), majority.others};
}

}  // namespace rondo
