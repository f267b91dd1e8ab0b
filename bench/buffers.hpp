// SPDX-License-Identifier: Apache-2.0
// Memory of one rank for one cell: sets of a buffer that calls use in turn, each with a guard behind it that no
// collective may touch.
#pragma once
#include <cstddef>

#include "bench/site.hpp"

namespace rondo::bench {

class GuardedBuffer {
 public:
  // Collective when `window`: then the memory comes from the communicator.
  GuardedBuffer(Site& site, Communicator& communicator, std::size_t bytes, int sets, bool window);
  std::byte* data(int set) const { return data_ + static_cast<std::size_t>(set) * stride_; }
  // Every set holds numbers between 2 and 33, whatever the floating type. However often they are summed or multiplied
  // in place they never become zeros, which memory writes faster, or denormals, which processors add slower.
  void make_ordinary() const;
  void poison(int set) const;  // everything, guard included
  std::size_t count_touched_guard_bytes(int set) const;

 private:
  Site& site_;
  std::size_t bytes_, stride_;
  int sets_;
  Site::Memory memory_;
  Window<std::byte> window_;
  std::byte* data_ = nullptr;
};

}  // namespace rondo::bench
