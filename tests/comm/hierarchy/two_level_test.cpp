// SPDX-License-Identifier: Apache-2.0
// Every collective on two levels, in every layout of ranks on nodes, against a naive reference.
#include <cstdio>

#include "tests/comm/stress/worlds.hpp"
#include "tests/package/job.hpp"
#include "tests/package/step.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

// One letter per rank: its node.
NodeNames nodes_of(const std::string& layout) {
  NodeNames nodes;
  for (const char node : layout) nodes.emplace_back(1, node);
  return nodes;
}

bool is_two_level(Collective collective) {
  return collective != Collective::all_to_all && collective != Collective::all_to_all_v;
}

consumer::Step make_step(Collective collective, int size, std::size_t count, consumer::Random& random) {
  consumer::Step step = consumer::draw_step(random, size, consumer::Style::untyped);
  while (step.collective != collective) step = consumer::draw_step(random, size, consumer::Style::untyped);
  step.count = count;
  if (!step.parts.empty()) {
    for (std::size_t& part : step.parts) part = random.chance(25) ? 0 : random.below(count + 1);
  }
  return step;
}

void check_all(Communicator& comm, std::uint64_t seed, std::span<const std::size_t> counts) {
  consumer::Random random(seed);
  for (const CollectiveRow& row : collective_table()) {
    if (row.collective == Collective::send || row.collective == Collective::recv) continue;
    for (const std::size_t count : counts) {
      for (int root = 0; root < (row.rooted ? comm.world_size() : 1); ++root) {
        consumer::Step step = make_step(row.collective, comm.world_size(), count, random);
        step.root = root;
        const auto job = consumer::make_job(step, comm);
        job->start(comm);
        const std::string algorithm = last_algorithm(comm);
        if ((algorithm == "two_level") != is_two_level(row.collective)) {
          throw std::runtime_error(consumer::describe(step) + " ran as " + algorithm);
        }
        try {
          job->verify(comm);
        } catch (const std::exception& error) {
          comm.abort();
          throw std::runtime_error("rank " + std::to_string(comm.rank()) + ", " + consumer::describe(step) + ": " +
                                   error.what());
        }
      }
    }
  }
}

void check_layout(const std::string& layout, std::span<const std::size_t> counts, std::uint64_t seed) {
  const auto errors =
      run_on_nodes(nodes_of(layout), {.timeout = 60s}, [&](Communicator& comm) { check_all(comm, seed, counts); });
  for (const auto& error : errors) {
    INFO("layout " << layout << ", seed " << seed << ": " << sentence_of(error));
    CHECK_FALSE(error);
  }
}

}  // namespace

TEST_CASE("two levels: every layout, collective, root and count") {
  static const std::uint32_t seed = rotating_seed();
  const std::string layout = GENERATE("aabb", "aaabbb", "abbb", "aabbcc", "aabbbc", "abab", "abcabc", "abcbab", "bbba");
  // Chunks of which short messages need many, FIFOs down to the smallest; and what is used otherwise.
  struct Shape {
    const char *slice_bytes, *slots, *segment_bytes, *tuning;
  };
  const Shape shape =
      GENERATE(Shape{"64", "2", "", "two_level_leader_bytes 64\ntwo_level_chunk_bytes 4K\n"},
               Shape{"256", "3", "65536", "two_level_leader_bytes 0\ntwo_level_chunk_bytes 4K\n"},
               Shape{"1024", "8", "262144", "two_level_chunk_bytes 16K\n"}, Shape{"", "", "", "# as built in\n"});
  const TuningFile tuning(shape.tuning);
  const Setting by_name("RONDO_ALGORITHM", "two_level"), segment("RONDO_SEGMENT_BYTES", shape.segment_bytes);
  const Setting slice("RONDO_SLICE_BYTES", shape.slice_bytes), slots("RONDO_FIFO_SLOTS", shape.slots);
  constexpr std::size_t kCounts[] = {0, 1, 5, 1000, 3001};
  check_layout(layout, kCounts, seed);
}

TEST_CASE("two levels: messages of many chunks") {
  static const std::uint32_t seed = rotating_seed();
  const std::string layout = GENERATE("aabb", "abbb", "abcabc");
  constexpr std::size_t kCounts[] = {60'001};
  const TuningFile tuning("two_level_chunk_bytes 16K\n");
  const Setting by_name("RONDO_ALGORITHM", "two_level");
  check_layout(layout, kCounts, seed);
}

TEST_CASE("two levels are taken where there are two, and where they keep what is asked for") {
  const auto algorithms = [](const std::string& layout, Determinism determinism, const std::string& wanted) {
    const Setting by_name("RONDO_ALGORITHM", wanted);
    std::string summed, shared;
    const auto errors = run_on_nodes(nodes_of(layout), {.determinism = determinism}, [&](Communicator& comm) {
      std::vector<float> one(100, 1.0F), all(100 * static_cast<std::size_t>(comm.world_size()));
      comm.all_reduce(one, ReduceOp::sum);
      if (comm.rank() == 0) summed = last_algorithm(comm);
      comm.all_gather(std::span<const float>(one), std::span<float>(all));
      if (comm.rank() == 0) shared = last_algorithm(comm);
    });
    for (const auto& error : errors) CHECK(sentence_of(error).empty());
    return summed + " " + shared;
  };
  CHECK(algorithms("aabb", Determinism::deterministic, "") == "two_level two_level");
  CHECK(algorithms("aabb", Determinism::reproducible, "") == "one_shot two_level");
  CHECK(algorithms("aabb", Determinism::deterministic, "ring") == "ring ring");
  CHECK(algorithms("ab", Determinism::deterministic, "") == "recursive_doubling pairwise");
  CHECK(algorithms("aaaa", Determinism::deterministic, "two_level") == "recursive_doubling pairwise");
}
