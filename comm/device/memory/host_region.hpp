// SPDX-License-Identifier: Apache-2.0
// Host memory that the ranks of one node and their devices share, where devices have no access to each other. It is a
// sealed memfd that a meeting hands around, so nothing of it has a name.
#pragma once
#include <memory>
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

  // Unregistering may wait for kernels, as freeing does: both go when none of the process's ranks runs one.
  ~HostRegion() { give_back(); }
  HostRegion(HostRegion&& other) noexcept = default;
  HostRegion& operator=(HostRegion&& other) noexcept;

  std::byte* device(std::size_t index) const { return device_base_ + index * stride_; }  // ranks[index]'s, for kernels
  std::size_t bytes() const { return pinned_ ? pinned_->mapping.bytes() : 0; }

 private:
  struct Pinned {
    Mapping mapping;
    HostRegistration registration;  // before the mapping goes
  };
  void give_back() noexcept;

  std::size_t stride_ = 0;
  const cuda::Api* api_ = nullptr;
  std::unique_ptr<Pinned> pinned_;
  std::byte* device_base_ = nullptr;
};

}  // namespace rondo::comm::device
