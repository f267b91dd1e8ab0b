// SPDX-License-Identifier: Apache-2.0
// What each rank of a communicator on devices tells all others about its device, its process and its wishes. Devices
// are matched by UUID, never by index: processes may see them in any order, and not all of them.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/device/setup/host_world.hpp"
#include "comm/device/setup/settings.hpp"
#include "kernels/cuda/api.hpp"

namespace rondo::comm::device {

using Uuid = std::array<unsigned char, 16>;
RONDO_API std::string text_of(const Uuid& uuid);  // "GPU-9f3c…": as nvidia-smi prints it

// The table of a kind of device, or Error(unsupported) with the sentence that says what is missing.
// For benchmarks too: a table of their own would know nothing of the library's devices.
RONDO_API const cuda::Api& api_of(rondo::Device::Kind kind);
// The index to use: `wanted`, or for -1 local_rank modulo the visible devices. Error(unsupported): there is none such.
int choose_device(const cuda::Api& api, int wanted, int local_rank);

struct HeldBlocks {  // blocks that one communicator may have running on a device, all ranks on it together
  std::uint64_t communicator;
  std::uint32_t blocks;
};

struct DeviceCard {
  rondo::Device::Kind kind{};
  Uuid uuid{};
  std::string name;  // of the device
  int index = 0;     // in this process: for messages alone
  int node = 0;
  std::string process;                // equal for ranks that are threads of one process
  std::vector<Uuid> visible;          // devices of this process
  std::vector<Uuid> accessible;       // those of them that this device can read and write in place, itself included
  std::vector<Uuid> linked;           // of these, by links that keep lines of 128 bytes whole, as NVLink does
  int mps = -1;                       // 1: processes share its time; 0: they are time-sliced; -1: nobody can tell
  std::uint32_t resident_blocks = 0;  // that the device can run at the same time
  std::vector<HeldBlocks> held;       // on this device, by communicators this process knows of
  std::uint64_t token = 0;            // random; rank 0's names the communicator in budgets
  Settings settings;

  Bytes encode() const;
  static DeviceCard decode(const Bytes& bytes);
};

class DeviceCards {
 public:
  // Collective. `own`: this rank's settings, which give way to rank 0's. Error(mismatch), on every rank, when ranks
  // asked for different kinds of device.
  static DeviceCards exchange(const HostWorld& world, const cuda::Api& api, rondo::Device::Kind kind, int device,
                              const Settings& own);
  DeviceCards(int rank, std::vector<DeviceCard> cards) : rank_(rank), cards_(std::move(cards)) {}  // in rank order

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(cards_.size()); }
  const DeviceCard& of(int rank) const { return cards_[static_cast<std::size_t>(rank)]; }
  const DeviceCard& own() const { return of(rank_); }
  const Settings& settings() const { return of(0).settings; }  // everybody's
  std::uint64_t communicator() const { return of(0).token; }

  bool same_process(int a, int b) const { return of(a).process == of(b).process; }  // whatever their nodes are called
  bool same_device(int a, int b) const { return of(a).uuid == of(b).uuid; }
  std::vector<int> on_device_of(int rank) const;  // ascending
  // Several processes use a rank's device, and nothing says that MPS runs: they are time-sliced.
  bool time_sliced(int rank) const;
  bool time_sliced() const { return time_sliced(rank_); }
  // Every line of 128 bytes that a device of one of these ranks writes to another's arrives whole.
  bool keep_lines_whole(const std::vector<int>& ranks) const;
  enum class Access { yes, no, unknown };   // unknown: the peer's device is not visible here; an import will tell
  Access access(int rank, int peer) const;  // `no` between devices where Settings::p2p is off

 private:
  int rank_;
  std::vector<DeviceCard> cards_;
};

}  // namespace rondo::comm::device
