// SPDX-License-Identifier: Apache-2.0
#include "comm/device/setup/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"

namespace rondo::comm::device {
namespace {

using kernels::device::FifoShape;
using kernels::device::kMaxBlocks;
using kernels::device::kMaxThreads;

// Fibers are dear: few threads and little memory. A GPU's blocks need a whole warp scheduler's worth of threads, and
// slots large enough that a flag's round trip is small beside them, yet in all small enough for the L2.
Settings defaults(rondo::Device::Kind kind) {
  Settings s;
  if (kind == rondo::Device::Kind::sim) {
    s.fifo[0] = {.slots = 4, .slot_bytes = 4096};
    s.fifo[1] = {.slots = 4, .slot_bytes = 2048};
    s.fifo[2] = {.slots = 4, .slot_bytes = 2048};
    return s;
  }
  s.channels = 16;
  s.blocks = 32;
  s.push_blocks = 4;
  s.threads = kMaxThreads;
  s.fifo[0] = {.slots = 8, .slot_bytes = 32 << 10};
  s.fifo[1] = {.slots = 4, .slot_bytes = 8 << 10};
  s.fifo[2] = {.slots = 4, .slot_bytes = 8 << 10};
  s.staging_bytes = 4 << 20;
  return s;
}

}  // namespace

Settings Settings::from_environment(rondo::Device::Kind kind) {
  Settings s = defaults(kind);
  const auto number = [](const char* name, auto& field, long low, long high) {
    const auto value = env_number(name, low, high);
    if (value) field = static_cast<std::remove_reference_t<decltype(field)>>(*value);
    return value.has_value();
  };
  const auto refuse = [](const char* name, long value, const char* why) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}={} is not {}", name, value, why));
  };
  number("RONDO_DEVICE_CHANNELS", s.channels, 1, kMaxBlocks);
  if (!number("RONDO_DEVICE_BLOCKS", s.blocks, 1, kMaxBlocks)) s.blocks = std::max(s.blocks, s.channels);
  s.channels = std::min(s.channels, s.blocks);
  number("RONDO_DEVICE_PUSH_BLOCKS", s.push_blocks, 0, kMaxBlocks);
  number("RONDO_DEVICE_THREADS", s.threads, 32, kMaxThreads);
  if (s.threads % 32 != 0) refuse("RONDO_DEVICE_THREADS", s.threads, "a number of whole warps: a multiple of 32");
  number("RONDO_DEVICE_SLOTS", s.fifo[0].slots, 2, 64);
  if (!std::has_single_bit(s.fifo[0].slots)) refuse("RONDO_DEVICE_SLOTS", s.fifo[0].slots, "a power of two");
  number("RONDO_DEVICE_SLOT_BYTES", s.fifo[0].slot_bytes, 512, 1 << 20);
  s.fifo[0].slot_bytes = (s.fifo[0].slot_bytes + 511) / 512 * 512;
  number("RONDO_DEVICE_BYTES", s.device_bytes, 1 << 14, 1L << 34);
  number("RONDO_DEVICE_STAGING_BYTES", s.staging_bytes, 0, 1L << 33);
  const auto onoff = [](const char* name, int& field) {
    const auto value = env(name);
    if (!value) return;
    if (*value != "on" && *value != "off") {
      throw Error(ErrorCode::invalid_argument, fmt::format("{}={} is neither on nor off", name, *value));
    }
    field = *value == "on" ? 1 : 0;
  };
  onoff("RONDO_DEVICE_P2P", s.p2p);
  onoff("RONDO_DEVICE_EARLY_LAUNCH", s.early_launch);
  onoff("RONDO_DEVICE_SYNC_DOMAIN", s.sync_domain);
  return s;
}

bool Settings::are_possible() const {
  const auto within = [](auto value, auto low, auto high) { return value >= low && value <= high; };
  const auto is_shape = [&](const FifoShape& shape) {
    return within(shape.slots, 2U, 64U) && std::has_single_bit(shape.slots) && within(shape.slot_bytes, 1U, 1U << 20);
  };
  return within(channels, 1, kMaxBlocks) && within(blocks, channels, kMaxBlocks) &&
         within(push_blocks, 0, kMaxBlocks) && within(threads, 32, kMaxThreads) && threads % 32 == 0 &&
         within(p2p, 0, 1) && within(early_launch, 0, 1) && within(sync_domain, 0, 1) &&
         std::all_of(std::begin(fifo), std::end(fifo), is_shape) &&
         within(device_bytes, std::uint64_t{1} << 14, std::uint64_t{1} << 34) &&
         within(staging_bytes, std::uint64_t{0}, std::uint64_t{1} << 33);
}

bool operator==(const Settings& a, const Settings& b) {
  const auto same_shape = [](const FifoShape& x, const FifoShape& y) {
    return x.slots == y.slots && x.slot_bytes == y.slot_bytes;
  };
  return a.channels == b.channels && a.blocks == b.blocks && a.push_blocks == b.push_blocks && a.threads == b.threads &&
         a.p2p == b.p2p && a.early_launch == b.early_launch && a.sync_domain == b.sync_domain &&
         std::equal(std::begin(a.fifo), std::end(a.fifo), std::begin(b.fifo), same_shape) &&
         a.device_bytes == b.device_bytes && a.staging_bytes == b.staging_bytes;
}

}  // namespace rondo::comm::device
