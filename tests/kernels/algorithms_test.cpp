// SPDX-License-Identifier: Apache-2.0
// Every algorithm of the table, recorded and verified, with the smallest FIFOs that are sound.
#include <string>

#include "kernels/algorithms/tuner.hpp"
#include "kernels/plan/text.hpp"
#include "kernels/plan/verifier.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo::kernels;

namespace {

constexpr LinkLayout kLayouts[] = {{1, 1, 2}, {2, 1, 2}, {1, 2, 3}, {3, 2, 3}, {2, 2, 8}};
constexpr int kLayoutCount = static_cast<int>(std::size(kLayouts));
constexpr int kCountKinds = 8;
constexpr int kRootKinds = 3;

std::vector<int> world_sizes() {
  std::vector<int> sizes;
  for (int size = 1; size <= 16; ++size) sizes.push_back(size);
  for (int size = 17; size < kMaxPlannedRanks; size += 2) sizes.push_back(size);
  sizes.push_back(kMaxPlannedRanks);
  return sizes;
}

std::size_t count_of(int kind, Pattern pattern, std::size_t n, std::size_t chunk) {
  // A round of a whole message may be n chunks; one of a block is a chunk.
  const bool whole = pattern == Pattern::all_reduce;
  switch (kind) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return n - 1;
    case 3:
      return n;
    case 4:
      return n + 1;
    case 5:
      return chunk;
    case 6:
      return whole ? n * chunk : 2 * chunk;
    default:
      return whole ? (n <= 16 ? 2 : 1) * n * chunk + 1 : 3 * chunk + 1;
  }
}

int root_of(int kind, int size) { return kind == 0 ? 0 : kind == 1 ? size - 1 : size / 2; }

// Blocks of very different length, empty ones among them.
std::vector<std::vector<std::size_t>> uneven_counts(Pattern pattern, int size, std::size_t count) {
  const std::size_t columns = row_of(pattern).has_block_per_pair() ? static_cast<std::size_t>(size) : 1;
  std::vector counts(static_cast<std::size_t>(size), std::vector<std::size_t>(columns));
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (std::size_t j = 0; j < columns; ++j) counts[i][j] = (i + 2 * j) % 3 == 0 ? 0 : (count + 3 * i + 5 * j) % 7;
  }
  return counts;
}

struct Case {
  int algorithm, size, count_kind, root_kind, layout;
  bool in_place, variable;
};

// True, once the plan is verified.
bool check(const Case& c) {
  const AlgorithmRow& row = algorithm_row(c.algorithm);
  const LinkLayout& layout = kLayouts[c.layout];
  Problem problem{
      .pattern = row.pattern,
      .size = c.size,
      .root = root_of(c.root_kind, c.size),
      .count = count_of(c.count_kind, row.pattern, static_cast<std::size_t>(c.size), layout.chunk_capacity()),
      .in_place = c.in_place};
  if (c.variable && row.variable_counts) problem.counts = uneven_counts(row.pattern, c.size, problem.count);
  std::vector<Finding> findings = verify(record(c.algorithm, problem, layout));
  if (findings.empty()) findings = verify(record(c.algorithm, problem, layout, Steps::together));
  if (findings.empty()) return true;
  INFO(text(row_of(row.pattern).name, " by ", row.name, ", ", c.size, " ranks, count ", problem.count, ", root ",
            problem.root, c.in_place ? ", in place" : "", c.variable ? ", variable" : "", ", slice ", layout.slice,
            " x ", layout.slices_per_chunk, ", ", layout.slots, " slots: ", name_of(findings[0].fault), ": ",
            findings[0].sentence));
  CHECK(findings.empty());
  return false;
}

}  // namespace

TEST_CASE("every algorithm's plan is right: all pairs of parameters") {
  const std::vector<int> sizes = world_sizes();
  rondo::test::PairwiseCases cases(
      {kAlgorithmCount, static_cast<int>(sizes.size()), kCountKinds, kLayoutCount, kRootKinds, 2, 2},
      rondo::test::rotating_seed());
  int right = 0;
  for (const auto& v : cases.all()) {
    right += check({v[0], sizes[static_cast<std::size_t>(v[1])], v[2], v[4], v[3], v[5] == 1, v[6] == 1});
  }
  CHECK(right >= kAlgorithmCount * static_cast<int>(sizes.size()));
  for (const LinkLayout& layout : kLayouts) CHECK(layout.is_sound());
}

TEST_CASE("every algorithm's plan is right: small worlds, everything") {
  int right = 0;
  for (int algorithm = 0; algorithm < kAlgorithmCount; ++algorithm) {
    for (int size = 1; size <= 6; ++size) {
      for (int count = 0; count < kCountKinds; ++count) {
        for (int layout = 0; layout < kLayoutCount; ++layout) {
          for (const bool in_place : {false, true}) {
            right += check({algorithm, size, count, size % kRootKinds, layout, in_place, false});
            if (algorithm_row(algorithm).variable_counts) {
              right += check({algorithm, size, count, size % kRootKinds, layout, in_place, true});
            }
          }
        }
      }
    }
  }
  CHECK(right > 10'000);
}

TEST_CASE("every algorithm's plan is right: the full product", "[.full]") {
  int right = 0;
  for (int algorithm = 0; algorithm < kAlgorithmCount; ++algorithm) {
    for (const int size : world_sizes()) {
      for (int count = 0; count < kCountKinds; ++count) {
        for (int root = 0; root < (row_of(algorithm_row(algorithm).pattern).rooted() ? kRootKinds : 1); ++root) {
          for (int layout = 0; layout < kLayoutCount; ++layout) {
            for (const bool in_place : {false, true}) {
              right += check({algorithm, size, count, root, layout, in_place, false});
              if (algorithm_row(algorithm).variable_counts)
                right += check({algorithm, size, count, root, layout, in_place, true});
            }
          }
        }
      }
    }
  }
  CHECK(right > 10'000);
}

TEST_CASE("names find algorithms, and the tuner always has one") {
  for (int id = 0; id < kAlgorithmCount; ++id) {
    CHECK(find_algorithm(algorithm_row(id).pattern, algorithm_row(id).name) == id);
  }
  CHECK(find_algorithm(Pattern::broadcast, "halving_doubling") == kNoAlgorithm);
  for (const PatternRow& pattern : kPatterns) {
    CHECK(row_of(pattern.pattern).name == pattern.name);
    for (const bool canonical : {false, true}) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}, std::size_t{1} << 40}) {
        for (const int size : {1, 2, 7, 64, 10'000}) {
          const int id = choose_algorithm(pattern.pattern, bytes, size, canonical);
          REQUIRE(id != kNoAlgorithm);
          CHECK(algorithm_row(id).pattern == pattern.pattern);
          CHECK((algorithm_row(id).canonical_order || !canonical));
        }
      }
    }
  }
  // A row's promise and the tuner's column are the same thing.
  for (const std::span<const TunerRow> rows :
       {std::span<const TunerRow>(kTuner), std::span<const TunerRow>(kCrowdedTuner)}) {
    for (const TunerRow& row : rows) {
      const int id = find_algorithm(row.pattern, row.algorithm);
      REQUIRE(id != kNoAlgorithm);
      CHECK(algorithm_row(id).canonical_order == row.canonical);
    }
  }
}

TEST_CASE("stars take 2(n-1) messages, in two steps") {
  for (const PatternRow& pattern : kPatterns) {
    const int star = find_algorithm(pattern.pattern, "star");
    if (star == kNoAlgorithm) continue;
    const PlanCost cost = cost_of(record(star, {.pattern = pattern.pattern, .size = 6, .count = 2}, {.slice = 100}));
    CAPTURE(pattern.name);
    for (int rank = 1; rank < 6; ++rank) {
      CHECK(cost.links[0][static_cast<std::size_t>(rank)].fifo_steps == 1);
      CHECK(cost.links[static_cast<std::size_t>(rank)][0].fifo_steps == 1);
      CHECK(cost.sent[static_cast<std::size_t>(rank)].fifo_steps == 1);
    }
  }
}

TEST_CASE("rings move the least: 2(n-1)/n of the message per rank") {
  const int ring = find_algorithm(Pattern::all_reduce, "ring");
  const Plan plan = record(ring, {.pattern = Pattern::all_reduce, .size = 5, .count = 1000}, {.slice = 10});
  for (const Traffic& sent : cost_of(plan).sent) CHECK(sent.elements == 2 * 4 * 1000 / 5);
  const int broadcast = find_algorithm(Pattern::broadcast, "ring");
  const PlanCost cost =
      cost_of(record(broadcast, {.pattern = Pattern::broadcast, .size = 3, .root = 1, .count = 25}, {.slice = 10}));
  CHECK(cost.links[1][2].elements == 25);
  CHECK(cost.links[1][2].fifo_steps == 3);
  CHECK(cost.links[2][0].elements == 25);
  CHECK(cost.links[0][1].elements == 0);
}
