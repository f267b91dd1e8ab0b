// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/anatomy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <rondo/dtype.hpp>
#include <rondo/reduce_op.hpp>

#include "kernels/algorithms/table.hpp"
#include "kernels/device/window_sum.hpp"

namespace rondo::gpu_check {
namespace {

namespace device = kernels::device;

constexpr std::size_t kStagingBytes = 64 << 10;
constexpr std::uint64_t kTimeoutNs = 5'000'000'000;

// Of the host page, which the device reaches at an address of its own.
class Page {
 public:
  explicit Page(const Api& api) : api_(api) {
    void* memory = nullptr;
    check(api_, api_.HostAlloc(&memory, sizeof(device::HostPage), cudaHostAllocMapped | cudaHostAllocPortable),
          "HostAlloc");
    page_ = new (memory) device::HostPage{};
    check(api_, api_.HostGetDevicePointer(&on_device_, page_, 0), "HostGetDevicePointer");
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ~Page() { api_.FreeHost(page_); }
  device::HostPage* on_device() const { return static_cast<device::HostPage*>(on_device_); }
  bool has_fault() const { return page_->fault.is_set != 0; }

 private:
  const Api& api_;
  device::HostPage* page_ = nullptr;
  void* on_device_ = nullptr;
};

struct Rank {
  Rank(const Api& api, const device::RegionLayout& layout, std::size_t bytes)
      : region(api, layout.bytes()),
        team(api, sizeof(device::DeviceTeam) + sizeof(device::StampLog)),
        locks(api, sizeof(device::Locks)),
        staging(api, kStagingBytes),
        input(api, bytes),
        output(api, bytes),
        page(api) {}
  DeviceMemory region, team, locks, staging, input, output;
  Page page;
};

device::RegionLayout layout_for(int ranks) {
  device::RegionLayout layout;
  layout.world_size = ranks;
  layout.push_blocks = 1;
  for (device::FifoShape& shape : layout.fifo) shape = {.slots = 4, .slot_bytes = 8 << 10};
  return layout;
}

class World {
 public:
  World(const Api& api, const AnatomyCase& what) : what_(what), layout_(layout_for(what.ranks)) {
    for (int rank = 0; rank < what.ranks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(api, layout_, what.bytes));
      const std::vector<float> input(what.bytes / sizeof(float), static_cast<float>(rank + 1));
      at(rank).input.write(input.data(), what.bytes);
    }
    for (int rank = 0; rank < what.ranks; ++rank) write_team(rank);
  }

  device::Launch launch(int rank) const {
    device::Launch launch{};
    launch.team = at(rank).team.as<device::DeviceTeam>();
    launch.timeout_ns = kTimeoutNs;
    launch.operations = 1;
    device::Operation& operation = launch.operation[0];
    operation.input = at(rank).input.as<std::byte>();
    operation.output = at(rank).output.as<std::byte>();
    operation.count = what_.bytes / sizeof(float);
    operation.factor = 1;
    operation.signature = {0, operation.count, 1, 0};
    operation.algorithm = what_.window ? kernels::find_window_algorithm(kernels::Pattern::all_reduce, "one_shot")
                                       : kernels::find_algorithm(kernels::Pattern::all_reduce, "one_shot");
    operation.send_counts = operation.recv_counts = device::kNoCounts;
    operation.dtype = static_cast<std::uint8_t>(DataType::f32);
    operation.op = static_cast<std::uint8_t>(ReduceOp::sum);
    operation.reduces = true;
    operation.channels = 1;
    operation.send_window = what_.registered ? 1 : -1;
    operation.recv_window = what_.registered ? 2 : -1;
    return launch;
  }

  template <class L>
  L special_launch(int rank) const {
    L launch{};
    launch.team = at(rank).team.as<device::DeviceTeam>();
    launch.timeout_ns = kTimeoutNs;
    launch.header = at(rank).region.as<device::RegionHeader>();
    launch.rank = rank;
    launch.ranks = what_.ranks;
    launch.operations = 1;
    return launch;
  }
  device::WindowSumLaunch window_sum_launch(int rank) const {
    auto sum = special_launch<device::WindowSumLaunch>(rank);
    for (int peer = 0; peer < what_.ranks; ++peer) {
      sum.openings[peer] =
          reinterpret_cast<device::Opening*>(at(peer).region.as<std::byte>() + layout_.openings_offset());
    }
    sum.operation[0] = device::make_window_sum(launch(rank).operation[0], what_.bytes, what_.ranks);
    return sum;
  }
  device::PushLaunch push_launch(int rank) const {
    auto push = special_launch<device::PushLaunch>(rank);
    for (int peer = 0; peer < what_.ranks; ++peer) {
      push.inbox[peer] = at(peer).region.as<std::byte>() + layout_.inbox_offset();
    }
    push.operation[0] = device::make_push(kernels::Pattern::all_reduce, launch(rank).operation[0], what_.bytes);
    return push;
  }

  void check_results() const {
    for (int rank = 0; rank < what_.ranks; ++rank) {
      if (at(rank).page.has_fault()) throw std::runtime_error(fmt::format("rank {}: the kernel gave up", rank));
      std::vector<float> output(what_.bytes / sizeof(float));
      at(rank).output.read(output.data(), what_.bytes);
      const auto wrong = [&](float value) { return value != static_cast<float>(what_.ranks * (what_.ranks + 1) / 2); };
      if (std::any_of(output.begin(), output.end(), wrong)) {
        throw std::runtime_error(fmt::format("rank {}: a sum is wrong", rank));
      }
    }
  }

  std::vector<device::StampedLaunch> stamped(int rank) const {
    const auto log = std::make_unique<device::StampLog>();
    at(rank).team.read(log.get(), sizeof(device::StampLog), sizeof(device::DeviceTeam));
    const std::uint64_t kept = std::min(log->launches, device::StampLog::kKept);
    std::vector<device::StampedLaunch> launches;  // the latest, in order
    for (std::uint64_t i = log->launches - kept; i < log->launches; ++i) {
      launches.push_back(log->launch[i % device::StampLog::kKept]);
    }
    return launches;
  }

 private:
  Rank& at(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

  void write_team(int rank) const {
    const auto team = std::make_unique<device::DeviceTeam>();
    team->rank = rank;
    team->world_size = what_.ranks;
    team->layout = layout_;
    team->staging_bytes = kStagingBytes;
    team->page = at(rank).page.on_device();
    team->locks = at(rank).locks.as<device::Locks>();
    for (int peer = 0; peer < what_.ranks; ++peer) {
      team->mine[peer] = at(rank).region.as<std::byte>();
      team->theirs[peer] = at(peer).region.as<std::byte>();
      team->headers[peer] = at(peer).region.as<device::RegionHeader>();
      team->windows[0][peer] = at(peer).staging.as<std::byte>();
      team->windows[1][peer] = at(peer).input.as<std::byte>();
      team->windows[2][peer] = at(peer).output.as<std::byte>();
    }
    at(rank).team.write(team.get(), sizeof(device::DeviceTeam));
  }

  const AnatomyCase& what_;
  device::RegionLayout layout_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void expect_same_places(const std::vector<device::StampedLaunch>& launches, int rank) {
  const device::StampedLaunch& first = launches.front();
  for (const device::StampedLaunch& launch : launches) {
    if (launch.count > device::StampedLaunch::kMost) {
      throw std::runtime_error(fmt::format("rank {}: {} stamps are more than a launch keeps", rank, launch.count));
    }
    if (launch.count != first.count || !std::equal(first.place, first.place + first.count, launch.place)) {
      throw std::runtime_error(fmt::format("rank {}: its launches passed different places", rank));
    }
  }
}

// The machine's clock is coarse: over all launches its steps even out.
double us_per_tick(const std::vector<std::vector<device::StampedLaunch>>& ranks) {
  double ns = 0, ticks = 0;
  for (const auto& launches : ranks) {
    for (const device::StampedLaunch& launch : launches) {
      ns += static_cast<double>(launch.end_ns - launch.begin_ns);
      ticks += static_cast<double>(launch.ticks[launch.count - 1] - launch.ticks[0]);
    }
  }
  return ticks == 0 ? 0 : 1e-3 * ns / ticks;
}

void add_rows(std::vector<PlaceRow>& rows, const std::vector<device::StampedLaunch>& launches, int rank,
              double us_per_tick) {
  for (std::uint32_t i = 0; i < launches.front().count; ++i) {
    std::vector<double> us;
    for (const device::StampedLaunch& launch : launches) {
      us.push_back(us_per_tick * static_cast<double>(launch.ticks[i] - launch.ticks[0]));
    }
    const auto [least, most] = std::minmax_element(us.begin(), us.end());
    const double least_us = *least, most_us = *most;
    rows.push_back({rank, static_cast<int>(i), launches.front().place[i], median(std::move(us)), least_us, most_us});
  }
}

std::vector<double> lateness(const std::vector<std::vector<device::StampedLaunch>>& ranks) {
  std::vector<double> late;
  for (const auto& launches : ranks) {
    std::vector<double> us;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      std::uint64_t first = launches[i].begin_ns;
      for (const auto& others : ranks) first = std::min(first, others[i].begin_ns);
      us.push_back(1e-3 * static_cast<double>(launches[i].begin_ns - first));
    }
    late.push_back(median(std::move(us)));
  }
  return late;
}

}  // namespace

std::string AnatomyCase::name() const {
  const std::string kernel = push ? "push" : window ? registered ? "window" : "window unregistered" : "ll";
  return early ? kernel + " early" : kernel;
}

Anatomy take_apart(const Api& api, const StampedKernels& kernels, const AnatomyCase& what, const Batches& batches) {
  // As the tuner has it.
  const unsigned threads = api.name != std::string("cuda") || what.push ? 64 : what.window ? 512 : 128;
  const World world(api, what);
  Anatomy found;
  found.call = time_calls(api, what.ranks, true, batches, [&](int rank, cudaStream_t stream) {
    if (what.push) return launch(api, kernels.push, 1, threads, world.push_launch(rank), stream, what.early);
    if (what.window) return launch(api, kernels.window, 1, threads, world.window_sum_launch(rank), stream, what.early);
    launch(api, kernels.ll, 1, threads, world.launch(rank), stream, what.early);
  });
  world.check_results();
  std::vector<std::vector<device::StampedLaunch>> ranks;
  for (int rank = 0; rank < what.ranks; ++rank) {
    ranks.push_back(world.stamped(rank));
    if (ranks.back().empty()) throw std::runtime_error(fmt::format("rank {}: no launch left a stamp", rank));
    expect_same_places(ranks.back(), rank);
  }
  const double scale = us_per_tick(ranks);
  for (int rank = 0; rank < what.ranks; ++rank) {
    add_rows(found.rows, ranks[static_cast<std::size_t>(rank)], rank, scale);
  }
  found.late_us = lateness(ranks);
  return found;
}

}  // namespace rondo::gpu_check
