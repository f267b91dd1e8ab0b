// SPDX-License-Identifier: Apache-2.0
// All ranks of a communicator on devices, in plain memory of this process: regions, teams, host pages, windows. What
// comm does with IPC handles is done here with pointers, so that kernels can be tested by themselves.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device/window_sum.hpp"
#include "kernels/simt/scheduler.hpp"
#include "kernels/soft/kernel.hpp"
#include "tests/kernels/device/guarded_buffer.hpp"

namespace rondo::test {

namespace device = kernels::device;

struct WorldShape {
  int ranks = 2;
  int blocks = 1;  // channels too
  int threads = 64;
  device::FifoShape fifo{4, 1024};  // of every protocol
  std::size_t staging_bytes = 0;    // of window 0, at every rank
  bool push = false;                // every block has inboxes
};

class DeviceWorld {
 public:
  explicit DeviceWorld(const WorldShape& shape) : shape_(shape), ranks_(static_cast<std::size_t>(shape.ranks)) {
    layout_.world_size = shape.ranks;
    layout_.channels = layout_.blocks = shape.blocks;
    layout_.push_blocks = shape.push ? shape.blocks : 0;
    std::fill(std::begin(layout_.fifo), std::end(layout_.fifo), shape.fifo);
    for (Rank& rank : ranks_) {
      rank.region = allocate_aligned(layout_.bytes());
      std::memset(rank.region.get(), 0, layout_.bytes());
      rank.team = std::make_unique<device::DeviceTeam>();
      rank.page = std::make_unique<device::HostPage>();
      rank.locks = std::make_unique<device::Locks>();
    }
    for (int rank = 0; rank < shape.ranks; ++rank) fill_team(rank);
    if (shape.staging_bytes != 0) add_window(0, shape.staging_bytes);
  }

  const WorldShape& shape() const { return shape_; }
  const device::RegionLayout& layout() const { return layout_; }
  device::DeviceTeam& team(int rank) { return *at(rank).team; }
  device::HostPage& page(int rank) { return *at(rank).page; }
  std::byte* region(int rank) { return at(rank).region.get(); }
  device::RegionHeader& header(int rank) { return *reinterpret_cast<device::RegionHeader*>(region(rank)); }
  device::Mailbox& mailbox(int rank, int peer, int channel, device::Protocol protocol) {
    return *reinterpret_cast<device::Mailbox*>(region(rank) + layout_.mailbox_offset(peer, channel, protocol));
  }

  // Symmetric memory: window `index` of every rank.
  void add_window(int index, std::size_t bytes) {
    for (Rank& rank : ranks_) rank.windows.push_back(allocate_aligned(bytes));
    for (Rank& rank : ranks_) {
      for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
        rank.team->windows[index][peer] = ranks_[peer].windows.back().get();
      }
    }
  }

  // All links as if `step` steps had gone over each. Before the first launch.
  void start_steps(std::uint64_t step) {
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      for (int peer = 0; peer < shape_.ranks; ++peer) {
        for (int channel = 0; channel < shape_.blocks; ++channel) {
          for (int protocol = 0; protocol < device::kProtocolCount; ++protocol) {
            auto& box = mailbox(rank, peer, channel, static_cast<device::Protocol>(protocol));
            box.posted = box.freed = box.sent = box.received = box.seen_freed = step;
          }
        }
      }
    }
  }

  // A launch that does nothing yet, for `rank`.
  device::Launch launch(int rank) {
    device::Launch launch{};
    launch.team = &team(rank);
    launch.timeout_ns = 60'000'000'000;
    return launch;
  }
  device::WindowSumLaunch window_sum_launch(int rank) {
    device::WindowSumLaunch launch = special_launch<device::WindowSumLaunch>(rank);
    for (int peer = 0; peer < shape_.ranks; ++peer) {
      launch.openings[peer] = reinterpret_cast<device::Opening*>(region(peer) + layout_.openings_offset());
    }
    return launch;
  }
  device::PushLaunch push_launch(int rank) {
    device::PushLaunch launch = special_launch<device::PushLaunch>(rank);
    for (int peer = 0; peer < shape_.ranks; ++peer) launch.inbox[peer] = region(peer) + layout_.inbox_offset();
    return launch;
  }

  // One kernel per rank (launches[r].team says whose it is), all on this thread under one scheduler, to the end. What
  // went wrong, or "". With options.explore every access is a scheduling point and a deadlock is exact.
  template <class L>
  std::string run(const void* kernel, std::vector<L>& launches, const simt::Options& options = {}) {
    simt::Scheduler scheduler(options);
    for (L& launch : launches) add_grid(scheduler, kernel, launch);
    return scheduler.run() == simt::Status::ok ? std::string() : scheduler.report();
  }

  // The same; ended(i) is called as soon as the kernel of launches[i] has, while others still run.
  template <class L, class F>
  std::string run(const void* kernel, std::vector<L>& launches, simt::Options options, F&& ended) {
    options.incremental = true;
    simt::Scheduler scheduler(options);
    for (L& launch : launches) add_grid(scheduler, kernel, launch);
    std::vector<bool> told(launches.size(), false);
    simt::Status status = simt::Status::paused;
    while (status == simt::Status::paused) {
      status = scheduler.run();
      for (std::size_t i = 0; i < launches.size(); ++i) {
        if (told[i] || !scheduler.is_done(static_cast<int>(i))) continue;
        told[i] = true;
        ended(i);
      }
    }
    return status == simt::Status::ok ? std::string() : scheduler.report();
  }

  // Several kernels of each rank, launches[i][rank]: a rank's next begins when its own has ended, as in streams.
  // ended(i, rank) as above.
  template <class F>
  std::string run_overlapping(const void* kernel, std::vector<std::vector<device::Launch>>& launches,
                              simt::Options options, F&& ended) {
    options.incremental = true;
    simt::Scheduler scheduler(options);
    std::vector<std::size_t> running(ranks_.size(), 0);  // of each rank, and its grid
    std::vector<int> grids;
    for (device::Launch& launch : launches[0]) grids.push_back(add_grid(scheduler, kernel, launch));
    simt::Status status = simt::Status::paused;
    while (status == simt::Status::paused) {
      status = scheduler.run();
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (running[rank] == launches.size() || !scheduler.is_done(grids[rank])) continue;
        ended(running[rank], static_cast<int>(rank));
        if (++running[rank] == launches.size()) continue;
        grids[rank] = add_grid(scheduler, kernel, launches[running[rank]][rank]);
        if (status == simt::Status::ok) status = simt::Status::paused;
      }
    }
    return status == simt::Status::ok ? std::string() : scheduler.report();
  }

  // The first kernel; another one as often as next(), which is asked at every pause, says so.
  template <class L, class F>
  std::string run_one_by_one(const void* kernel, std::vector<L>& launches, simt::Options options, F&& next) {
    options.incremental = true;
    simt::Scheduler scheduler(options);
    std::size_t begun = 0;
    add_grid(scheduler, kernel, launches[begun++]);
    simt::Status status = simt::Status::paused;
    while (status == simt::Status::paused) {
      status = scheduler.run();
      if (next() && begun < launches.size()) add_grid(scheduler, kernel, launches[begun++]);
    }
    return status == simt::Status::ok ? std::string() : scheduler.report();
  }

  // Every rank on a thread of its own, as in processes. `meanwhile` runs on this thread, `before(i)` on that of
  // launches[i] before its kernel; a sentence per failed rank.
  template <class L, class F, class B>
  std::string run_on_threads(const void* kernel, std::vector<L>& launches, F&& meanwhile, B&& before) {
    std::vector<std::string> reports(launches.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      threads.emplace_back([&, i] {
        before(i);
        simt::Options options;
        options.external = true;
        options.seed = i;
        simt::Scheduler scheduler(options);
        add_grid(scheduler, kernel, launches[i]);
        if (scheduler.run() != simt::Status::ok) reports[i] = scheduler.report();
      });
    }
    meanwhile();
    std::string report;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      threads[i].join();
      report += reports[i];
    }
    return report;
  }
  template <class L, class F>
  std::string run_on_threads(const void* kernel, std::vector<L>& launches, F&& meanwhile) {
    return run_on_threads(kernel, launches, meanwhile, [](std::size_t) {});
  }
  template <class L>
  std::string run_on_threads(const void* kernel, std::vector<L>& launches) {
    return run_on_threads(kernel, launches, [] {});
  }

 private:
  struct Rank {
    AlignedBytes region;
    std::unique_ptr<device::DeviceTeam> team;
    std::unique_ptr<device::HostPage> page;
    std::unique_ptr<device::Locks> locks;
    std::vector<AlignedBytes> windows;
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  template <class L>
  L special_launch(int rank) {
    L launch{};
    launch.team = &team(rank);
    launch.timeout_ns = 60'000'000'000;
    launch.header = &header(rank);
    launch.rank = rank;
    launch.ranks = shape_.ranks;
    return launch;
  }

  void fill_team(int rank) {
    device::DeviceTeam& team = this->team(rank);
    team.rank = rank;
    team.world_size = shape_.ranks;
    team.layout = layout_;
    team.staging_bytes = shape_.staging_bytes;
    team.page = &page(rank);
    team.locks = at(rank).locks.get();
    for (int peer = 0; peer < shape_.ranks; ++peer) {
      team.mine[peer] = region(rank);
      team.theirs[peer] = region(peer);
      team.headers[peer] = &header(peer);
    }
  }

  template <class L>
  int add_grid(simt::Scheduler& scheduler, const void* kernel, L& launch) {
    const auto& soft = *static_cast<const soft::Kernel*>(kernel);
    return scheduler.add_grid({.name = soft.name,
                               .rank = launch.team->rank,
                               .blocks = static_cast<unsigned>(shape_.blocks),
                               .threads = static_cast<unsigned>(shape_.threads),
                               .body = soft.run,
                               .argument = &launch,
                               .early = true});
  }

  WorldShape shape_;
  device::RegionLayout layout_;
  std::vector<Rank> ranks_;
};

}  // namespace rondo::test
