// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/window_memory.hpp"

#include "comm/base/log.hpp"

namespace rondo::comm::device {

// Before the communicator goes; later there is nothing left to give back.
WindowMemory::~WindowMemory() {
  if (!status_ || allocation_.data == nullptr) return;
  DeviceEngine* engine = nullptr;
  {
    const std::lock_guard lock(status_->mutex);
    engine = status_->engine;
  }
  if (engine == nullptr) return;
  try {
    engine->windows().release(allocation_, engine->record_last_use());
  } catch (const Error& error) {
    log::error("{}", error.what());
  }
}

WindowMemory allocate(DeviceEngine& engine, std::size_t bytes) {
  return {engine.status(), engine.windows().allocate(bytes)};
}
WindowMemory register_memory(DeviceEngine& engine, void* data, std::size_t bytes) {
  return {engine.status(), engine.windows().register_memory(static_cast<std::byte*>(data), bytes)};
}

}  // namespace rondo::comm::device
