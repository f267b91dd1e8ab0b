// SPDX-License-Identifier: Apache-2.0
// The device side of a rank on the host executor, without an engine: regions and windows of simulated devices.
#pragma once
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/device/memory/windows.hpp"
#include "kernels/cuda/api.hpp"
#include "kernels/soft/kernel.hpp"
#include "kernels/soft/settings.hpp"
#include "tests/support/same_kernels.hpp"

namespace rondo::test {

struct Nothing {};
inline void do_nothing(const Nothing&) {}
inline constexpr soft::Kernel kNothing = soft::kernel<do_nothing, Nothing>("nothing");

// The soft runtime with kernels that do nothing: who tests memory launches none.
inline const cuda::Api& sim() {
  static const cuda::Api api = [] {
    cuda::Api table = cuda::soft_api();
    table.kernels = same_kernels(&kNothing);
    return table;
  }();
  return api;
}

// What the simulated machine is like, for one test.
class Machine {
 public:
  template <class Change>
  explicit Machine(Change change) : before_(soft::settings()) {
    soft::Settings settings = before_;
    change(settings);
    if (!configure(settings)) throw std::logic_error("simulated devices are still in use");
  }
  ~Machine() {
    if (!configure(before_)) std::terminate();  // every later test would run on this machine
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

 private:
  // Threads of destroyed streams may still be about to end.
  static bool configure(const soft::Settings& settings) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!soft::configure(settings)) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }
  soft::Settings before_;
};

inline std::size_t free_bytes(int device) {
  const comm::device::DeviceScope scope(sim(), device);
  std::size_t free = 0, all = 0;
  comm::device::check(sim(), sim().MemGetInfo(&free, &all), device, "MemGetInfo");
  return free;
}

// Copies by address, whatever lies there. A copy to a device may still be under way when Memcpy returns.
inline void copy(void* to, const void* from, std::size_t bytes, int device) {
  const comm::device::DeviceScope scope(sim(), device);
  comm::device::check(sim(), sim().Memcpy(to, from, bytes, cudaMemcpyDefault), device, "Memcpy");
  comm::device::check(sim(), sim().StreamSynchronize(nullptr), device, "StreamSynchronize");
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
    const auto cards = comm::device::DeviceCards::exchange(world, sim(), Device::Kind::sim, device, settings);
    regions_ = std::make_unique<comm::device::Regions>(sim(), device, world, cards,
                                                       comm::device::reserve_blocks(world, cards));
    windows_ = std::make_unique<comm::device::Windows>(*regions_);
  }
  comm::device::Regions& regions() { return *regions_; }
  comm::device::Windows& windows() { return *windows_; }
  std::unique_ptr<kernels::device::DeviceTeam> team() const {
    auto team = std::make_unique<kernels::device::DeviceTeam>();
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
