// SPDX-License-Identifier: Apache-2.0
// How a rank's device memory comes to its peers: threads of its process take the pointer, other processes of its node
// open the allocation it lies in.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/base/bytes.hpp"
#include "comm/device/memory/cuda_handles.hpp"
#include "comm/device/setup/device_cards.hpp"

namespace rondo::comm::device {

// Memory that ranks of one process share: freed by the last of them that lets go of it.
using SharedMemory = std::shared_ptr<DeviceMemory>;

// What a rank says of its memory. Pointers mean something in its process alone, and `owner` until the next exchange.
struct Export {
  std::byte* pointer = nullptr;  // null: nothing to share
  std::uint64_t bytes = 0;
  const SharedMemory* owner = nullptr;  // null: the caller's own memory
  std::uint64_t plain = 0;              // not 0: cudaMalloc's, which whoever has access to its device can use
  std::uint64_t opens = 0;              // not 0: other processes can open the handle
  std::uint64_t offset = 0;             // from the start of the allocation
  cudaIpcMemHandle_t handle{};
};

// `owner` may be null. Whether processes can open it, the runtime says; error: it is no device memory.
Export make_export(const cuda::Api& api, int device, std::byte* memory, std::size_t bytes, const SharedMemory* owner);

// A peer's memory as this rank reaches it, as long as this lives.
class Peer {
 public:
  Peer() = default;
  // Throws Error(cuda) when it cannot be opened, Error(unsupported) when it is not to be.
  Peer(const cuda::Api& api, int device, const DeviceCards& cards, int peer, const Export& theirs);
  std::byte* pointer() const { return pointer_; }

 private:
  SharedMemory shared_;
  ImportedMemory imported_;
  std::byte* pointer_ = nullptr;
};

}  // namespace rondo::comm::device
