// SPDX-License-Identifier: Apache-2.0
#include "comm/node/memory/store_choice.hpp"

#include <vector>

#include "tests/support/catch.hpp"

using namespace rondo::comm;
using rondo::kernels::Stores;

namespace {

constexpr double kNearNs = 40, kLimitNs = 110, kFarNs = 150;
constexpr std::size_t kBytes = 64 << 10;

// So many lines, of which every one of `period` took long.
void add(DistanceEstimate& estimate, int lines, int period) {
  for (int line = 0; line < lines; ++line) estimate.add(line % period == 0 ? kFarNs : kNearNs);
}

struct Memory {
  static constexpr FifoShape kShape{.slots = 2, .slice_bytes = 1024, .ring_bytes = 4096};
  explicit Memory(int ranks) : bytes(Segment::bytes(ranks, kShape) + kLine) {
    auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    segment = Segment(bytes.data() + (kLine - address % kLine) % kLine, ranks, kShape);
  }
  std::vector<std::byte> bytes;
  Segment segment;
};

}  // namespace

TEST_CASE("cores are far when every other line takes long, and near when one of five does") {
  DistanceEstimate estimate(kLimitNs);
  CHECK_FALSE(estimate.far());
  add(estimate, 1000, 5);
  CHECK_FALSE(estimate.far());
  add(estimate, 20, 2);  // others' lines come from this rank's own core
  CHECK(estimate.far());
  add(estimate, 1000, 2);
  CHECK(estimate.far());
}

TEST_CASE("the estimate follows cores that move") {
  DistanceEstimate estimate(kLimitNs);
  add(estimate, 1000, 1);
  CHECK(estimate.far());
  add(estimate, 100, 5);
  CHECK_FALSE(estimate.far());
  add(estimate, 5, 1);
  CHECK(estimate.far());
}

TEST_CASE("a line from the cache that cores share is near, though it had left the reader's own") {
  DistanceEstimate estimate(kLimitNs);
  for (int line = 0; line < 100; ++line) estimate.add(line % 2 == 0 ? 100 : kNearNs);
  CHECK_FALSE(estimate.far());
}

TEST_CASE("lines that take as long as the machine's own near ones say near, and twice as long say far") {
  DistanceEstimate estimate;
  const double limit_ns = DistanceEstimate::machine_far_ns();
  for (int line = 0; line < 100; ++line) estimate.add(limit_ns * 0.7);
  CHECK_FALSE(estimate.far());
  for (int line = 0; line < 100; ++line) estimate.add(limit_ns * 1.5);
  CHECK(estimate.far());
}

TEST_CASE("stores go past the caches while another rank says that others are far, but not those of a few bytes") {
  const Memory memory(3);
  const StoreChoice choice(memory.segment, 0, false);
  CHECK(choice.stores(kBytes) == Stores::plain);
  memory.segment.distance(2).far = 1;
  CHECK(choice.stores(kBytes) == Stores::streaming);
  CHECK(choice.stores(512) == Stores::plain);
  memory.segment.distance(2).far = 0;
  CHECK(choice.stores(kBytes) == Stores::plain);
  memory.segment.distance(0).far = 1;  // its own word, which a root that only writes does not renew
  CHECK(choice.stores(kBytes) == Stores::plain);
}

TEST_CASE("what only a rank of the same core reads goes through the caches, however far others are") {
  const Memory memory(3);
  const StoreChoice choice(memory.segment, 0, true), with_cores(memory.segment, 0, false);
  memory.segment.distance(2).far = 1;
  CHECK(choice.stores(kBytes, 1) == Stores::streaming);  // nobody has said where it is
  memory.segment.line(0).core = 1;
  memory.segment.line(1).core = 1;
  memory.segment.line(2).core = 2;
  CHECK(choice.stores(kBytes, 1) == Stores::plain);
  CHECK(choice.stores(kBytes, 2) == Stores::streaming);
  CHECK(with_cores.stores(kBytes, 1) == Stores::streaming);  // may have moved, and has not said so
  memory.segment.distance(2).far = 0;
  CHECK(choice.stores(kBytes, 2) == Stores::plain);
}

TEST_CASE("a rank says what it found of lines that were written since it looked") {
  const Memory memory(2);
  StoreChoice reader(memory.segment, 0, false), writer(memory.segment, 1, false);
  auto& said = memory.segment.distance(0).far;
  said = 1;
  for (int chunk = 0; chunk < 100; ++chunk) reader.read();
  CHECK(said == 1);  // nothing was written
  for (int chunk = 0; chunk < 100; ++chunk) {
    writer.wrote();
    reader.read();
  }
  CHECK(said == 0);  // this thread wrote the lines itself
}
