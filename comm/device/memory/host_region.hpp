// SPDX-License-Identifier: Apache-2.0
// Host memory that the ranks of one node and their devices share, where devices have no access to each other. It is a
// sealed memfd that a meeting hands around, so nothing of it has a name.
#pragma once
#include <span>

#include "comm/device/memory/cuda_handles.hpp"
#include "comm/device/setup/host_world.hpp"
#include "comm/transport/memory.hpp"

namespace rondo::comm::device {

class HostRegion {
 public:
  HostRegion() = default;
  // Collective over the world; `ranks` are those that share, this one included, ascending. Each has `bytes_per_rank`
  // of zeroes. Throws what went wrong here; the others learn of it from the caller.
  HostRegion(const cuda::Api& api, int device, const HostWorld& world, std::span<const int> ranks,
             std::size_t bytes_per_rank);

  std::byte* host(std::size_t index) const { return mapping_.data() + index * stride_; }  // of ranks[index]
  std::byte* device(std::size_t index) const { return device_base_ + index * stride_; }   // as kernels reach it
  std::size_t bytes() const { return mapping_.bytes(); }

 private:
  std::size_t stride_ = 0;
  Mapping mapping_;
  HostRegistration registration_;  // before the mapping goes
  std::byte* device_base_ = nullptr;
};

}  // namespace rondo::comm::device
