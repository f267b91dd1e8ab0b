// SPDX-License-Identifier: Apache-2.0
// Blocks that wait for each other must all be resident, or a collective hangs. A communicator reserves what its
// kernels may have running on its device; all communicators that this process knows of share the device's capacity.
// Where a device has none left, a later communicator has blocks of an earlier one in turn with it (berth.hpp).
// The registry is the process's, as devices are, and any thread may use it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/device/memory/berth.hpp"
#include "comm/device/setup/device_cards.hpp"

namespace rondo::comm::device {

// Capacity of a device for our kernels: multiprocessors times the blocks that fit on one, of the largest kernel.
std::uint32_t resident_blocks(const cuda::Api& api, int device, int threads);

// Blocks of communicators on the device, for this rank's card.
std::vector<HeldBlocks> held_blocks(const Uuid& uuid);

struct BlockShare {
  int channels = 0, blocks = 0;  // of one rank; the settings' or fewer
};
// The same on every rank: the first communicator on a device may have three quarters of its blocks, each later one a
// quarter of what is left, and one a rank at the least, which a device without any left lends.
BlockShare share_blocks(const DeviceCards& cards);

// Until destruction: a berth of its own, whose blocks ranks of one communicator on one device reserve together, or one
// that was lent.
class BlockReservation {
 public:
  BlockReservation() = default;
  // Error(unsupported) when another thread's communicator took the blocks since the cards were exchanged, or, of a
  // share of one block, when nobody can lend any.
  BlockReservation(const DeviceCards& cards, const BlockShare& share, int driver);
  BlockReservation(BlockReservation&& other) noexcept;
  BlockReservation& operator=(BlockReservation&& other) noexcept;
  ~BlockReservation();

  // For regions whose launches follow those of this one's: the same blocks. They stay reserved as long as this lives.
  BlockReservation part() const;
  const BlockShare& share() const { return share_; }
  const std::shared_ptr<Berth>& berth() const { return berth_; }
  bool is_lent() const { return lent_; }

 private:
  BlockShare share_;
  std::shared_ptr<Berth> berth_;  // null: none
  bool lent_ = false, is_part_ = false;
};

// Collective: equal shares on every rank. Error(unsupported), on every rank, when there is none for some; it names the
// device, its capacity and who holds it.
BlockReservation reserve_blocks(const HostWorld& world, const DeviceCards& cards);

}  // namespace rondo::comm::device
