// SPDX-License-Identifier: Apache-2.0
// What fits into the memory that a communicator on devices may have.
#include <algorithm>

#include "comm/device/memory/regions.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::comm::device;
using kernels::device::FifoShape;
using kernels::device::Protocol;

TEST_CASE("what is asked for is had where it fits, and never more than the bound") {
  const auto kind = GENERATE(Device::Kind::sim, Device::Kind::cuda);
  const int world_size = GENERATE(1, 2, 3, 4, 8, 16, 33, 64);
  const bool one_island = GENERATE(true, false);
  CAPTURE(static_cast<int>(kind), world_size, one_island);
  const Settings settings = Settings::from_environment(kind);
  const BlockShare share{settings.channels, settings.blocks};
  const RegionPlan plan = plan_regions(world_size, settings, share, one_island);
  CHECK(plan.layout.bytes() + plan.staging_bytes <= settings.device_bytes);
  CHECK(plan.layout.world_size == world_size);
  CHECK(plan.layout.blocks == share.blocks);
  CHECK(plan.layout.channels >= 1);
  for (int p = 0; p < kernels::device::kProtocolCount; ++p) {
    const FifoShape& shape = plan.layout.fifo[p];
    const bool there = one_island || p == 0;
    CHECK(has_protocol(plan.layout, static_cast<Protocol>(p)) == there);
    if (!there) continue;
    CHECK(shape.slots >= 2);
    CHECK((shape.slots & (shape.slots - 1)) == 0);
    CHECK(shape.slot_bytes >= 1024);
    CHECK(shape.slot_bytes % 512 == 0);
  }
  if (world_size <= 2) CHECK(plan.layout.fifo[0].slot_bytes == settings.fifo[0].slot_bytes);
  if (world_size <= 4) CHECK(plan.layout.channels == settings.channels);
  if (world_size <= 8) CHECK(plan.layout.fifo[0].slot_bytes >= std::min(16384U, settings.fifo[0].slot_bytes));
}

TEST_CASE("slots shrink first, then there are fewer, then fewer channels") {
  Settings settings = Settings::from_environment(Device::Kind::sim);
  settings.channels = 8;
  settings.staging_bytes = 0;
  std::size_t before = SIZE_MAX;
  for (const std::uint64_t bytes : {1 << 22, 1 << 20, 1 << 19, 1 << 18, 1 << 17, 1 << 16}) {
    settings.device_bytes = bytes;
    const RegionPlan plan = plan_regions(4, settings, {8, 8}, true);
    CAPTURE(bytes, plan.layout.channels, plan.layout.fifo[0].slots, plan.layout.fifo[0].slot_bytes);
    CHECK(plan.layout.bytes() <= bytes);
    CHECK(plan.layout.bytes() <= before);
    before = plan.layout.bytes();
    if (plan.layout.channels < 8) CHECK(plan.layout.fifo[0].slots == 2);
    if (plan.layout.fifo[0].slots < settings.fifo[0].slots) CHECK(plan.layout.fifo[0].slot_bytes == 1024);
  }
}

TEST_CASE("push kernels have their inboxes, unless memory is short or a rank is out of reach") {
  Settings settings = Settings::from_environment(Device::Kind::cuda);
  const auto blocks = [&](int world_size, bool one_island = true, int of = 32) {
    return plan_regions(world_size, settings, {16, of}, one_island).layout.push_blocks;
  };
  CHECK(blocks(8) == 4);
  CHECK(blocks(8, true, 2) == 2);
  CHECK(blocks(8, false) == 0);
  CHECK(blocks(64) == 2);  // an eighth of 16 MiB
  settings.device_bytes = 1 << 20;
  CHECK(blocks(8) == 1);
  settings.device_bytes = 1 << 19;
  CHECK(blocks(8) == 0);
  settings.push_blocks = 0;
  CHECK(blocks(2) == 0);
}

TEST_CASE("too little memory, and too many ranks, are said") {
  Settings settings = Settings::from_environment(Device::Kind::sim);
  settings.device_bytes = 1 << 14;
  const auto refusal = [&](int world_size) {
    return test::sentence_of(test::thrown_by([&] { plan_regions(world_size, settings, {1, 1}, true); }));
  };
  CHECK(refusal(16).starts_with("RONDO_DEVICE_BYTES=16384 is too little for 16 ranks"));
  CHECK(refusal(65) == "a communicator on devices has at most 64 ranks, not 65: split it");
}
