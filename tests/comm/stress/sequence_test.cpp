// SPDX-License-Identifier: Apache-2.0
// Random sequences of collectives on random groups against a naive reference, over every transport, with FIFOs down to
// the smallest, in both orders of reduction.
#include <cstdio>
#include <random>

#include "tests/comm/stress/worlds.hpp"
#include "tests/package/sequence.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/few_cores.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

struct Shape {
  const char* slice_bytes;
  const char* slots;
  const char* segment_bytes = "";  // the board's chunks shrink with it
};

void run_sequences(Kind kind, int world, Shape shape, const std::string& algorithm, Determinism determinism,
                   std::uint64_t seed, int steps) {
  const Setting by_name("RONDO_ALGORITHM", algorithm), segment("RONDO_SEGMENT_BYTES", shape.segment_bytes);
  const Setting slice("RONDO_SLICE_BYTES", shape.slice_bytes);
  const Setting slots("RONDO_FIFO_SLOTS", shape.slots);
  Options options;
  options.timeout = 60s;
  options.determinism = determinism;
  const auto errors = run_world(kind, world, options, [&](Communicator& comm) {
    try {
      consumer::run_sequence(comm, seed, steps);
    } catch (...) {
      comm.abort();
      throw;
    }
  });
  for (const auto& error : errors) {
    INFO(kind << ", " << world << " ranks, slices of " << shape.slice_bytes << " bytes, " << shape.slots << " slots, "
              << algorithm << ", " << (determinism == Determinism::reproducible ? "reproducible" : "deterministic")
              << ", seed " << seed);
    INFO(sentence_of(error));
    CHECK_FALSE(error);
  }
}

}  // namespace

TEST_CASE("sequences: every world size, transport, FIFO shape and determinism") {
  static const std::uint32_t seed = rotating_seed();
  const int world = GENERATE(1, 2, 3, 4, 5, 6, 7, 8, 9);
  const Kind kind = GENERATE(Kind::local, Kind::shm, Kind::tcp, Kind::pairs, Kind::uneven, Kind::woven, Kind::queue,
                             Kind::queue_pairs);
  constexpr Shape kShapes[] = {{"", ""}, {"64", "2"}, {"256", "3", "65536"}, {"4096", "5", "262144"}};
  std::mt19937_64 random(seed + static_cast<std::uint64_t>(100 * world) + static_cast<std::uint64_t>(kind));
  Shape shape = kShapes[random() % std::size(kShapes)];
  if (world > 5 && shape.slice_bytes == kShapes[1].slice_bytes) shape = kShapes[2];      // else a step of 64 bytes each
  constexpr const char* kAlgorithms[] = {"", "board", "two_level", "ring", "two_shot"};  // the last two: over links
  const std::string algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
  const std::size_t most_cores = random() % 2 == 0 ? 2 : FewCores::kAll;
  const FewCores cores(most_cores);
  INFO("at most " << most_cores << " cores");
  const auto determinism = random() % 2 == 0 ? Determinism::deterministic : Determinism::reproducible;
  run_sequences(kind, world, shape, algorithm, determinism, random(), 25);
}
