// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/kept.hpp"

#include <mutex>
#include <vector>

namespace rondo::comm::device {

// The process's, as the devices' memory is.
void keep_for_good(Kept kept) {
  static std::mutex mutex;
  static auto* all = new std::vector<Kept>;  // not destroyed at exit, when the runtime may be gone
  const std::lock_guard lock(mutex);
  all->push_back(std::move(kept));
}

}  // namespace rondo::comm::device
