// SPDX-License-Identifier: Apache-2.0
// Memory of one rank for one cell, with a guard behind it that no collective may touch.
#pragma once
#include <cstddef>
#include <memory>

#include <rondo/communicator.hpp>

namespace rondo::bench {

class GuardedBuffer {
 public:
  // Collective when `window`: then the memory comes from the communicator.
  GuardedBuffer(Communicator& communicator, std::size_t bytes, bool window);
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void poison() const;  // everything, guard included
  std::size_t count_touched_guard_bytes() const;

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> heap_;
  Window<std::byte> window_;
  std::byte* data_ = nullptr;
};

}  // namespace rondo::bench
