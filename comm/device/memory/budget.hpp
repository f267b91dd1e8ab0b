// SPDX-License-Identifier: Apache-2.0
// Blocks that wait for each other must all be resident, or a collective hangs. A communicator reserves what its
// kernels may have running on its device; all communicators that this process knows of share the device's capacity.
// The registry is the process's, as devices are, and any thread may use it.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/device/setup/device_cards.hpp"

namespace rondo::comm::device {

// Capacity of a device for our kernels: multiprocessors times the blocks that fit on one, of the largest kernel.
std::uint32_t resident_blocks(const cuda::Api& api, int device, int threads);

// Blocks of communicators on the device, for this rank's card.
std::vector<HeldBlocks> held_blocks(const Uuid& uuid);

struct BlockShare {
  int channels = 0, blocks = 0;  // of one rank; the settings' or fewer
};
// The same on every rank. Error(unsupported), on every rank, when not even one block per rank fits somewhere; it names
// the device, its capacity and who holds it.
BlockShare share_blocks(const DeviceCards& cards);

// Held until destruction, once per rank; ranks of one communicator on one device count once together.
class BlockReservation {
 public:
  BlockReservation() = default;
  // Error(unsupported) when another thread's communicator took the blocks since the cards were exchanged.
  BlockReservation(const DeviceCards& cards, const BlockShare& share);
  BlockReservation(BlockReservation&& other) noexcept;
  BlockReservation& operator=(BlockReservation&& other) noexcept;
  ~BlockReservation();

 private:
  Uuid uuid_{};
  std::uint64_t communicator_ = 0;  // 0: none
};

}  // namespace rondo::comm::device
