// SPDX-License-Identifier: Apache-2.0
// Every knob of a communicator on devices, read from the environment once per communicator; rank 0's are everybody's.
#pragma once
#include <cstdint>

#include <rondo/communicator.hpp>

#include "kernels/device/layout.hpp"

namespace rondo::comm::device {

struct Settings {
  int channels = 2;     // RONDO_DEVICE_CHANNELS, 1 to kMaxBlocks: links per pair of ranks, and blocks of FIFO kernels
  int blocks = 2;       // RONDO_DEVICE_BLOCKS, channels to kMaxBlocks: of window kernels; see Budget
  int push_blocks = 1;  // RONDO_DEVICE_PUSH_BLOCKS, 0 to kMaxBlocks: of push kernels, 4 KiB of a rank each; 0: without
  int threads = 64;     // RONDO_DEVICE_THREADS: of a block, whole warps
  // By Protocol. RONDO_DEVICE_SLOTS (a power of two) and RONDO_DEVICE_SLOT_BYTES are Simple's.
  kernels::device::FifoShape fifo[kernels::device::kProtocolCount] = {};
  std::uint64_t device_bytes = 16 << 20;  // RONDO_DEVICE_BYTES: bound of region and staging area, per rank
  int p2p = 1;                            // RONDO_DEVICE_P2P, on or off: 0: no device reads or writes another's memory
  int early_launch = 1;  // RONDO_DEVICE_EARLY_LAUNCH, on or off: kernels may begin while what comes before them ends
  int sync_domain = 1;   // RONDO_DEVICE_SYNC_DOMAIN, on or off: fences of kernels wait for stores of other domains not
  std::uint64_t staging_bytes = 64 << 10;  // RONDO_DEVICE_STAGING_BYTES: window 0; at most a quarter of device_bytes

  static Settings from_environment(rondo::Device::Kind kind);
  bool are_possible() const;  // those of another rank
  friend bool operator==(const Settings& a, const Settings& b);
};

}  // namespace rondo::comm::device
