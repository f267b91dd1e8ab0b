// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "comm/device/memory/cuda_handles.hpp"

namespace rondo::comm::device {
namespace {

// What this process has reserved. Process-wide, because devices are.
struct Registry {
  struct Share {
    std::uint32_t blocks = 0;
    int ranks = 0;  // of this process that hold it
  };
  std::mutex mutex;
  std::map<Uuid, std::map<std::uint64_t, Share>> devices;  // by UUID, by communicator
};
Registry& registry() {
  static Registry instance;
  return instance;
}

// Of all communicators that any rank on the device knows of, each counted once.
std::uint32_t held_on(const DeviceCards& cards, const std::vector<int>& ranks, std::size_t& communicators) {
  std::map<std::uint64_t, std::uint32_t> all;
  for (const int r : ranks) {
    for (const HeldBlocks& held : cards.of(r).held) {
      std::uint32_t& blocks = all[held.communicator];
      blocks = std::max(blocks, held.blocks);
    }
  }
  std::uint32_t sum = 0;
  for (const auto& [communicator, blocks] : all) sum += blocks;
  communicators = all.size();
  return sum;
}

std::uint32_t capacity_of(const DeviceCards& cards, const std::vector<int>& ranks) {
  std::uint32_t capacity = UINT32_MAX;
  for (const int r : ranks) capacity = std::min(capacity, cards.of(r).resident_blocks);
  return capacity;
}

// Where ranks share a device, its last quarter is for communicators that they make later: a block a rank, more at best.
int beside_later_ones(std::uint32_t capacity, std::uint32_t held, std::size_t ranks) {
  const std::uint32_t most = capacity - capacity / 4;
  return std::max(static_cast<int>((most - std::min(held, most)) / ranks), 1);
}

}  // namespace

std::uint32_t resident_blocks(const cuda::Api& api, int device, int threads) {
  const DeviceScope scope(api, device);
  int multiprocessors = 0, least = INT32_MAX;
  check(api, api.DeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), device,
        "counting multiprocessors");
  const auto& [fifo, window] = api.kernels;
  for (const void* kernel : {fifo[0], fifo[1], fifo[2], window}) {
    int blocks = 0;
    check(api, api.OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0), device,
          "asking how many blocks fit on a multiprocessor");
    least = std::min(least, blocks);
  }
  return static_cast<std::uint32_t>(std::max(least, 0)) * static_cast<std::uint32_t>(multiprocessors);
}

std::vector<HeldBlocks> held_blocks(const Uuid& uuid) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<HeldBlocks> held;
  const auto device = all.devices.find(uuid);
  if (device == all.devices.end()) return held;
  for (const auto& [communicator, share] : device->second) held.push_back({communicator, share.blocks});
  return held;
}

BlockShare share_blocks(const DeviceCards& cards) {
  const Settings& settings = cards.settings();
  BlockShare share{settings.channels, settings.blocks};
  for (int r = 0; r < cards.size(); ++r) {
    const std::vector<int> ranks = cards.on_device_of(r);
    if (ranks.front() != r) continue;
    std::size_t communicators = 0;
    const std::uint32_t capacity = capacity_of(cards, ranks);
    const std::uint32_t held = held_on(cards, ranks, communicators);
    const auto fits = static_cast<int>((capacity - std::min(held, capacity)) / ranks.size());
    if (fits == 0) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("{} ({}) runs {} blocks at a time, {} other communicators hold {} of them, and {} ranks "
                              "need one each: use fewer ranks per device, or destroy a communicator first",
                              cards.of(r).name, text_of(cards.of(r).uuid), capacity, communicators, held, ranks.size()),
                  r);
    }
    share.blocks = std::min(share.blocks, ranks.size() == 1 ? fits : beside_later_ones(capacity, held, ranks.size()));
  }
  share.channels = std::min(share.channels, share.blocks);
  return share;
}

BlockReservation::BlockReservation(const DeviceCards& cards, const BlockShare& share) : uuid_(cards.own().uuid) {
  const std::vector<int> ranks = cards.on_device_of(cards.rank());
  const std::uint32_t capacity = capacity_of(cards, ranks);
  const auto wanted = static_cast<std::uint32_t>(share.blocks) * static_cast<std::uint32_t>(ranks.size());
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto& device = all.devices[uuid_];
  std::uint32_t others = 0;
  for (const auto& [communicator, held] : device) {
    if (communicator != cards.communicator()) others += held.blocks;
  }
  if (others + wanted > capacity) {
    throw Error(ErrorCode::unsupported,
                fmt::format("another communicator was made at the same time and took the blocks of {} ({}) that rank "
                            "{} was to have: make it again",
                            cards.own().name, text_of(uuid_), cards.rank()),
                cards.rank());
  }
  communicator_ = cards.communicator();
  Registry::Share& mine = device[communicator_];
  mine.blocks = wanted;
  ++mine.ranks;
}

BlockReservation::BlockReservation(BlockReservation&& other) noexcept
    : uuid_(other.uuid_), communicator_(std::exchange(other.communicator_, 0)) {}

BlockReservation& BlockReservation::operator=(BlockReservation&& other) noexcept {
  std::swap(uuid_, other.uuid_);
  std::swap(communicator_, other.communicator_);
  return *this;
}

BlockReservation::~BlockReservation() {
  if (communicator_ == 0) return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto& device = all.devices[uuid_];
  const auto mine = device.find(communicator_);
  if (--mine->second.ranks == 0) device.erase(mine);
  if (device.empty()) all.devices.erase(uuid_);
}

}  // namespace rondo::comm::device
