// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/host_region.hpp"

#include <exception>
#include <memory>

#include "comm/base/duration.hpp"
#include "comm/base/log.hpp"
#include "comm/device/memory/frees.hpp"
#include "comm/transport/node_meeting.hpp"

namespace rondo::comm::device {

HostRegion::HostRegion(const cuda::Api& api, int device, const HostWorld& world, std::span<const int> ranks,
                       std::size_t bytes_per_rank) {
  constexpr std::size_t kPage = 4096;
  stride_ = (bytes_per_rank + kPage - 1) / kPage * kPage;
  const std::size_t total = stride_ * ranks.size();
  std::unique_ptr<NodeMeeting> meeting;
  std::exception_ptr obstacle;
  try {
    meeting = std::make_unique<NodeMeeting>(world.rank, world.name + "/device", world.authenticator);
  } catch (...) {  // the others exchange in any case
    obstacle = std::current_exception();
  }
  const std::vector<Bytes> advertisements = world.exchange(meeting ? meeting->advertisement() : Bytes{});
  if (obstacle) std::rethrow_exception(obstacle);
  const auto deadline = deadline_after(world.join_timeout);
  const NodeDescriptors descriptors = meeting->meet(ranks, advertisements, total, deadline);
  api_ = &api;
  pinned_ = std::make_unique<Pinned>();
  pinned_->mapping = map(descriptors.segment, total);
  pinned_->registration = register_host(api, device, pinned_->mapping.data(), total);
  device_base_ = device_pointer(api, device, pinned_->mapping.data());
}

HostRegion& HostRegion::operator=(HostRegion&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  stride_ = other.stride_;
  api_ = other.api_;
  pinned_ = std::move(other.pinned_);
  device_base_ = other.device_base_;
  return *this;
}

void HostRegion::give_back() noexcept {
  if (!pinned_) return;
  try {
    free_in_peace(*api_, [pinned = std::shared_ptr<Pinned>(std::move(pinned_))]() mutable { pinned.reset(); });
  } catch (const std::bad_alloc&) {
    log::warn("{}: no memory to remember what is to be unregistered", api_->name);
  }
}

}  // namespace rondo::comm::device
