// SPDX-License-Identifier: Apache-2.0
// Values of every rank. They go over the host's connections, wherever the communicator's buffers lie.
#pragma once
#include <cstring>
#include <span>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::bench {

// Collective; `mine` may have another length on every rank. Returns when every rank has called, so also a barrier.
template <class T>
std::vector<std::vector<T>> gather_values(Communicator& communicator, std::span<const T> mine) {
  std::vector<std::vector<T>> all;
  for (const auto& bytes : communicator.all_gather_bytes(std::as_bytes(mine))) {
    all.emplace_back(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(all.back().data(), bytes.data(), bytes.size());
  }
  return all;
}
template <class T>
std::vector<T> gather_value(Communicator& communicator, T mine) {
  std::vector<T> all;
  for (const auto& one : gather_values(communicator, std::span<const T>(&mine, 1))) all.push_back(one.at(0));
  return all;
}

inline void meet(Communicator& communicator) { communicator.all_gather_bytes({}); }

}  // namespace rondo::bench
