// SPDX-License-Identifier: Apache-2.0
// One rank's region and staging area, its peers' as mapped here, and the kernels' view of them all. Made and destroyed
// by the communicator's thread; kernels use what it owns until then.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/device/memory/budget.hpp"
#include "comm/device/memory/cuda_handles.hpp"
#include "comm/device/memory/exports.hpp"
#include "comm/device/setup/device_cards.hpp"
#include "comm/device/setup/host_world.hpp"
#include "kernels/device/push.hpp"

namespace rondo::comm::device {

// Where everything lies, from what rank 0 asks for: slots shrink first, then channels, until region and staging area
// fit into settings.device_bytes. `one_island`: false leaves Simple alone, whose slots a proxy can move. `whole_lines`:
// false leaves LL128 out, whose lines must arrive whole.
// Error(invalid_argument) when the least layout does not fit.
struct RegionPlan {
  kernels::device::RegionLayout layout;
  std::size_t staging_bytes = 0;
};
RegionPlan plan_regions(int world_size, const Settings& settings, BlockShare share, bool one_island,
                        bool whole_lines = true);
// A FIFO that the layout leaves out has no slots.
inline bool has_protocol(const kernels::device::RegionLayout& layout, kernels::device::Protocol protocol) {
  return layout.fifo[static_cast<int>(protocol)].slots != 0;
}

// How the memory of a peer is reached.
enum class Route : unsigned char {
  own,     // this rank
  thread,  // a rank of this process: its pointer
  ipc,     // another process of this node: an imported allocation
  host,    // this node, but devices without access to each other: host memory that both map
  proxy    // another node
};

class Regions {
 public:
  // CUDA puts smaller allocations into one block, all of which an importer would map.
  static constexpr std::size_t kCudaBlock = 2 << 20;

  // Collective. Errors are every rank's.
  Regions(const cuda::Api& api, int device, const HostWorld& world, const DeviceCards& cards,
          BlockReservation reservation);
  ~Regions();  // bounded: waits for importers a moment, else leaks and says so
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  const kernels::device::RegionLayout& layout() const { return plan_.layout; }
  std::size_t staging_bytes() const { return plan_.staging_bytes; }
  const BlockReservation& reservation() const;
  const kernels::device::DeviceTeam* team() const;  // for Launch::team
  kernels::device::HostPage& page() const;          // as the host sees it
  std::byte* failed_word() const;  // RegionHeader::failed of this rank's region, as its device reaches it
  Route route(int peer) const { return routes_[static_cast<std::size_t>(peer)]; }
  // All ranks are on one node; otherwise a proxy serves the others (proxy.hpp).
  bool one_island() const;
  // Launches of nothing yet, for push kernels and for sums over windows: where everything lies. Only on one island.
  const kernels::device::PushLaunch& push_launch() const { return push_launch_; }
  const kernels::device::WindowSumLaunch& window_sum_launch() const { return window_sum_launch_; }
  // No two devices of this node have access to each other: regions and staging are host memory, allocate() is not
  // shared.
  bool in_host_memory() const { return in_host_memory_; }
  // Some pairs of ranks of this node have no access: their links lie in host memory, and there is no staging area.
  bool in_pairs() const { return in_pairs_; }
  std::size_t device_bytes() const;  // of device memory, all of this communicator's but windows
  std::size_t pinned_bytes() const;

  // The pinned ends of the link with a rank of another island, by its mailboxes' offsets: what its proxy writes into
  // (`mine`) and what this rank's kernels write (`theirs`), as the host sees them.
  struct LinkEnds {
    std::byte* mine;
    std::byte* theirs;
  };
  LinkEnds link_ends(int peer) const;

  // Zeroes device memory, and puts a row into the kernels' table of windows: neither waits for any kernel, and kernels
  // that are enqueued after it returned see it.
  void zero(std::byte* memory, std::size_t bytes);
  void set_window(int window, std::span<std::byte* const> by_rank);
  // What was mapped of other processes and let go is unmapped, within a moment. False: kernels of other ranks of this
  // process run.
  bool let_go_of_others() const;
  // Frees memory that other processes may still map once they have said that they do not: at destruction.
  void keep(SharedMemory memory);

  const cuda::Api& api() const { return api_; }
  int device() const { return device_; }
  const HostWorld& world() const { return world_; }
  const DeviceCards& cards() const { return cards_; }

 private:
  struct Parts;
  void find_routes();
  void allocate_links();
  void share_device_memory();
  void share_host_memory();
  void fill_team();
  void prepare_launches();
  std::vector<int> neighbours() const;  // ranks of this node, this one included
  using Peers = std::uint64_t;          // a bit per rank
  bool may_reach(int a, int b) const;
  bool may_reach_any() const;
  void map_peers(const std::vector<Bytes>& exports);
  void deny(int peer, const std::string& why);
  bool is_denied(int a, int b) const;
  void exchange_denials();
  bool is_tested(int peer) const;
  std::uint64_t token_of(int rank) const;
  std::size_t arrivals_bytes() const;
  void write_token(int peer);
  void test_peers();
  void decide();
  std::byte* host_region_of(int rank) const;
  std::byte* region_of(int rank) const;  // as kernels reach it; null: on another node
  std::size_t staging_offset() const;
  std::size_t link_area_bytes() const;
  void copy_in(const void* from, std::byte* to, std::size_t bytes);
  void copy_between(const std::byte* from, std::byte* to);
  std::uint64_t copy_out(const std::byte* from);

  const cuda::Api& api_;
  int device_;
  HostWorld world_;
  DeviceCards cards_;
  RegionPlan plan_;
  std::vector<Route> routes_;
  kernels::device::PushLaunch push_launch_{};
  kernels::device::WindowSumLaunch window_sum_launch_{};
  std::vector<Peers> denied_;  // by rank: whose memory it does not use
  bool in_host_memory_ = false, in_pairs_ = false;
  std::unique_ptr<Parts> parts_;
};

}  // namespace rondo::comm::device
