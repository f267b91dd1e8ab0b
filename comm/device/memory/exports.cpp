// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/exports.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.hpp>

namespace rondo::comm::device {
namespace {

// Devices of one process reach each other's memory by its address, once that is switched on.
void enable_access(const cuda::Api& api, int device, const DeviceCards& cards, int peer) {
  if (cards.of(peer).uuid == cards.own().uuid) return;
  const auto& visible = cards.own().visible;
  const auto index = std::find(visible.begin(), visible.end(), cards.of(peer).uuid) - visible.begin();
  const DeviceScope scope(api, device);
  const cudaError_t code = api.DeviceEnablePeerAccess(static_cast<int>(index), 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled) {
    api.GetLastError();
    return;
  }
  check(api, code, device, fmt::format("enabling access to the device of rank {}", peer));
}

}  // namespace

Export make_export(const cuda::Api& api, int device, std::byte* memory, std::size_t bytes, const SharedMemory* owner) {
  const DeviceScope scope(api, device);
  Export made{.pointer = memory, .bytes = bytes, .owner = owner};
  void* base = nullptr;
  std::size_t whole = 0;
  bool opens = false;
  check(api, api.MemGetAllocation(&base, &whole, &opens, memory), device, "finding the allocation of a buffer");
  made.offset = static_cast<std::uint64_t>(memory - static_cast<std::byte*>(base));
  made.plain = opens ? 1 : 0;
  made.opens = opens && api.IpcGetMemHandle(&made.handle, base) == cudaSuccess;
  if (opens && made.opens == 0) api.GetLastError();
  return made;
}

Peer::Peer(const cuda::Api& api, int device, const DeviceCards& cards, int peer, const Export& theirs) {
  if (cards.same_process(cards.rank(), peer)) {
    enable_access(api, device, cards, peer);
    if (theirs.owner != nullptr) shared_ = *theirs.owner;
    pointer_ = theirs.pointer;
    return;
  }
  if (theirs.opens == 0) {
    throw Error(ErrorCode::unsupported, fmt::format("the memory of rank {} cannot be opened by other processes", peer),
                peer);
  }
  imported_ = import_memory(api, device, theirs.handle);
  pointer_ = imported_.get() + theirs.offset;
}

}  // namespace rondo::comm::device
