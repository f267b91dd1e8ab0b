// SPDX-License-Identifier: Apache-2.0
// Which buffers of other ranks this rank can use where they lie. A rank describes its own by a Spot, and every rank
// draws the same conclusion from the same Spot: memory of a window, or, among threads, any. Of other
// memory it says where it lies in its process, for those who can have the kernel copy it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "comm/node/memory/windows.hpp"
#include "comm/team/team.hpp"

namespace rondo::comm {

struct Spot {
  enum class Kind : std::uint32_t { unreachable, window, address, process };
  Kind kind = Kind::unreachable;
  std::uint32_t window = 0;
  std::uint64_t at = 0;  // bytes into the rank's block of the window; or the address itself, in the rank's process
};

class Reach {
 public:
  Reach(const Team& team, Windows& windows) : windows_(windows), threads_(team.monitor() == nullptr) {}

  bool possible() const { return threads_ || windows_.any(); }  // at all, for any buffer; the same on all ranks
  Spot describe(const void* data, std::size_t bytes) const {
    if (data == nullptr) return {};
    if (threads_) return {.kind = Spot::Kind::address, .at = reinterpret_cast<std::uintptr_t>(data)};
    if (const auto part = windows_.find(data, bytes))
      return {.kind = Spot::Kind::window, .window = part->window, .at = part->offset};
    return {.kind = Spot::Kind::process, .at = reinterpret_cast<std::uintptr_t>(data)};
  }
  // Where this rank finds the buffer of the rank with that index; null: unreachable, or no such place.
  std::byte* find(int index, const Spot& spot, std::size_t bytes) const {
    if (spot.kind == Spot::Kind::window) return windows_.at(index, {spot.window, spot.at}, bytes);
    if (spot.kind == Spot::Kind::address && threads_) return reinterpret_cast<std::byte*>(spot.at);
    return nullptr;
  }
  Windows& windows() const { return windows_; }

 private:
  Windows& windows_;
  const bool threads_;  // all ranks are threads of this process
};

}  // namespace rondo::comm
