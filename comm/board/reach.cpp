// SPDX-License-Identifier: Apache-2.0
#include "comm/board/reach.hpp"

namespace rondo::comm {

Spot Reach::describe(const void* data, std::size_t bytes) const {
  if (data == nullptr) return {};
  if (threads_) return {.kind = Spot::Kind::address, .at = reinterpret_cast<std::uintptr_t>(data)};
  if (const auto place = windows_.find(data, bytes)) {
    return {.kind = Spot::Kind::window, .window = place->window, .at = place->offset};
  }
  return {};
}

std::byte* Reach::find(int index, const Spot& spot, std::size_t bytes) const {
  if (spot.kind == Spot::Kind::window) return windows_.at(index, {spot.window, spot.at}, bytes);
  if (spot.kind == Spot::Kind::address && threads_) return reinterpret_cast<std::byte*>(spot.at);
  return nullptr;
}

}  // namespace rondo::comm
