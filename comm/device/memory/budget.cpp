// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "comm/device/memory/cuda_handles.hpp"
#include "comm/device/setup/obstacles.hpp"

namespace rondo::comm::device {
namespace {

struct Held {  // by one communicator, on one device
  std::uint32_t blocks = 0;
  std::vector<std::weak_ptr<Berth>> berths;  // of its ranks in this process; gone: nobody uses it any more
};

// What this process has reserved. Process-wide, because devices are.
struct Registry {
  std::mutex mutex;
  std::map<Uuid, std::map<std::uint64_t, Held>> devices;  // by UUID, by communicator

  // With the lock.
  std::map<std::uint64_t, Held>& on(const Uuid& uuid) {
    auto& device = devices[uuid];
    for (auto& [communicator, held] : device) {
      std::erase_if(held.berths, [](const std::weak_ptr<Berth>& berth) { return berth.expired(); });
    }
    std::erase_if(device, [](const auto& each) { return each.second.berths.empty(); });
    return device;
  }
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

// Shrinking geometrically, so that a framework's ten groups have some each. The first, which most calls are made on,
// has most.
int fair_share(std::uint32_t capacity, std::uint32_t held, std::size_t ranks) {
  const std::uint32_t left = capacity - std::min(held, capacity);
  const std::uint32_t most = held == 0 ? capacity - capacity / 4 : left / 4;
  return std::max(static_cast<int>(most / ranks), 1);
}

// The one that is least missed: of those with fewest blocks the least used.
std::shared_ptr<Berth> borrow(std::map<std::uint64_t, Held>& device, int driver) {
  for (;;) {
    std::shared_ptr<Berth> best;
    for (const auto& [communicator, held] : device) {
      for (const std::weak_ptr<Berth>& each : held.berths) {
        auto berth = each.lock();
        if (!berth || berth->driver() != driver || berth->is_in_graphs()) continue;
        const auto key = [](const Berth& l) { return std::tuple(l.blocks(), l.users()); };
        if (!best || key(*berth) < key(*best)) best = std::move(berth);
      }
    }
    if (!best || best->enter()) return best;  // else it has just been captured
  }
}

[[noreturn]] void refuse(const DeviceCards& cards, const std::vector<int>& ranks, std::uint32_t capacity) {
  std::size_t communicators = 0;
  const std::uint32_t held = held_on(cards, ranks, communicators);
  throw Error(ErrorCode::unsupported,
              fmt::format("{} ({}) runs {} blocks at a time, {} other communicators hold {} of them, {} ranks need one "
                          "each, and none of those is rank {}'s to take turns with: use fewer ranks per device, or "
                          "destroy a communicator, or its graphs, first",
                          cards.own().name, text_of(cards.own().uuid), capacity, communicators, held, ranks.size(),
                          cards.rank()),
              cards.rank());
}

// Who makes this rank's calls, where no communicator that it came from says so: the same place among the ranks of a
// process on a device is taken for the same driver.
int driver_of(const DeviceCards& cards) {
  int before = 0;
  for (const int r : cards.on_device_of(cards.rank())) {
    if (r < cards.rank() && cards.same_process(r, cards.rank())) ++before;
  }
  return before;
}

}  // namespace

std::uint32_t resident_blocks(const cuda::Api& api, int device, int threads) {
  const DeviceScope scope(api, device);
  int multiprocessors = 0, least = INT32_MAX;
  check(api, api.DeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), device,
        "counting multiprocessors");
  for (const void* kernel : cuda::all_of(api.kernels)) {
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
  for (const auto& [communicator, share] : all.on(uuid)) held.push_back({communicator, share.blocks});
  return held;
}

BlockShare share_blocks(const DeviceCards& cards) {
  const Settings& settings = cards.settings();
  BlockShare share{settings.channels, settings.blocks};
  for (int r = 0; r < cards.size(); ++r) {
    const std::vector<int> ranks = cards.on_device_of(r);
    if (ranks.front() != r) continue;
    std::size_t communicators = 0;
    const std::uint32_t held = held_on(cards, ranks, communicators);
    share.blocks = std::min(share.blocks, fair_share(capacity_of(cards, ranks), held, ranks.size()));
  }
  share.channels = std::min(share.channels, share.blocks);
  return share;
}

BlockReservation::BlockReservation(const DeviceCards& cards, const BlockShare& share, int driver) : share_(share) {
  const std::vector<int> ranks = cards.on_device_of(cards.rank());
  const std::uint32_t capacity = capacity_of(cards, ranks);
  const auto wanted = static_cast<std::uint32_t>(share.blocks) * static_cast<std::uint32_t>(ranks.size());
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto& device = all.on(cards.own().uuid);
  std::uint32_t others = 0;
  for (const auto& [communicator, held] : device) others += held.blocks;
  std::size_t communicators = 0;
  others = std::max(others, held_on(cards, ranks, communicators));
  const bool joins = device.contains(cards.communicator());  // another rank has reserved for this one, too
  if (joins || others + wanted <= capacity) {
    berth_ = std::make_shared<Berth>(driver, static_cast<std::uint32_t>(share.blocks));
    berth_->enter();
    Held& held = device[cards.communicator()];
    held.blocks = wanted;
    held.berths.push_back(berth_);
    return;
  }
  if (share.blocks > 1) {
    throw Error(ErrorCode::unsupported,
                fmt::format("another communicator took the blocks of {} ({}) that rank {} was to have",
                            cards.own().name, text_of(cards.own().uuid), cards.rank()),
                cards.rank());
  }
  lent_ = true;
  berth_ = borrow(device, driver);
  if (!berth_) refuse(cards, ranks, capacity);
}

BlockReservation::BlockReservation(BlockReservation&& other) noexcept
    : share_(other.share_),
      berth_(std::exchange(other.berth_, nullptr)),
      lent_(other.lent_),
      is_part_(other.is_part_) {}

BlockReservation& BlockReservation::operator=(BlockReservation&& other) noexcept {
  std::swap(share_, other.share_);
  std::swap(berth_, other.berth_);
  std::swap(lent_, other.lent_);
  std::swap(is_part_, other.is_part_);
  return *this;
}

BlockReservation::~BlockReservation() {
  if (berth_ && !is_part_) berth_->leave();
}

BlockReservation BlockReservation::part() const {
  BlockReservation part;
  part.share_ = share_;
  part.berth_ = berth_;
  part.lent_ = lent_;
  part.is_part_ = true;
  return part;
}

BlockReservation reserve_blocks(const HostWorld& world, const DeviceCards& cards) {
  const int driver = world.driver >= 0 ? world.driver : driver_of(cards);
  for (BlockShare share = share_blocks(cards);; share = {1, 1}) {
    BlockReservation made;
    const std::string obstacle = obstacle_of([&] { made = BlockReservation(cards, share, driver); });
    const auto obstacles = exchange_obstacles(world, obstacle);
    const bool is_last = share.blocks == 1;
    if (is_last) throw_obstacle(obstacles, ErrorCode::unsupported, "have its blocks");
    if (std::all_of(obstacles.begin(), obstacles.end(), [](const std::string& o) { return o.empty(); })) return made;
  }
}

}  // namespace rondo::comm::device
