// SPDX-License-Identifier: Apache-2.0
// The device side of a rank on the host executor, without an engine: regions and windows of simulated devices.
#pragma once
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/device/windows.hpp"
#include "kernels/cuda/api.hpp"
#include "kernels/soft/settings.hpp"

namespace rondo::test {

// What the simulated machine is like, for one test.
class Machine {
 public:
  explicit Machine(const soft::Settings& settings) : before_(soft::settings()) {
    if (!soft::configure(settings)) throw std::logic_error("simulated devices are still in use");
  }
  ~Machine() { soft::configure(before_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

 private:
  soft::Settings before_;
};

inline std::size_t free_bytes(int device) {
  const comm::device::DeviceScope scope(cuda::soft_api(), device);
  std::size_t free = 0, all = 0;
  comm::device::check(cuda::soft_api(), cuda::soft_api().MemGetInfo(&free, &all), device, "MemGetInfo");
  return free;
}

// Copies by address, whatever lies there.
inline void copy(void* to, const void* from, std::size_t bytes, int device) {
  const comm::device::DeviceScope scope(cuda::soft_api(), device);
  comm::device::check(cuda::soft_api(), cuda::soft_api().Memcpy(to, from, bytes, cudaMemcpyDefault), device, "Memcpy");
}

// Makes regions and windows over `comm`, which is a communicator on the CPU. Collective.
class SimRank {
 public:
  SimRank(Communicator& comm, int device, std::optional<std::vector<int>> nodes = {})
      : SimRank(comm, device, nodes, comm::device::Settings::from_environment(Device::Kind::sim)) {}
  SimRank(Communicator& comm, int device, std::optional<std::vector<int>> nodes, const comm::device::Settings& settings)
      : comm_(comm), device_(device) {
    auto world = comm::device::make_host_world(detail::impl_of(comm));
    if (nodes) world.nodes = *nodes;
    const auto cards = comm::device::Cards::exchange(world, cuda::soft_api(), Device::Kind::sim, device, settings);
    regions_ = std::make_unique<comm::device::Regions>(cuda::soft_api(), device, world, cards,
                                                       comm::device::share_blocks(cards));
    windows_ = std::make_unique<comm::device::Windows>(*regions_);
  }
  comm::device::Regions& regions() { return *regions_; }
  comm::device::Windows& windows() { return *windows_; }
  std::unique_ptr<kernels::device::Team> team() const {
    auto team = std::make_unique<kernels::device::Team>();
    copy(team.get(), regions_->team(), sizeof *team, device_);
    return team;
  }
  void barrier() { comm_.barrier(); }

 private:
  Communicator& comm_;
  int device_;
  std::unique_ptr<comm::device::Regions> regions_;
  std::unique_ptr<comm::device::Windows> windows_;
};

}  // namespace rondo::test
