// SPDX-License-Identifier: Apache-2.0
#include "comm/node/memory/host_window.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/log.hpp"
#include "comm/base/system_error.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/transport/node_meeting.hpp"

namespace rondo::comm {
namespace {

using Bytes = std::vector<std::byte>;

// Everybody is here already: what has not met by then will not.
constexpr std::chrono::seconds kPatience{10};

HostWindow make_private(int rank, std::size_t bytes) {
  Mapping memory = map_anonymous(NodeWindow::pages_for(bytes), NodeWindow::alignment(bytes));
#if defined(MADV_HUGEPAGE)
  static_cast<void>(::madvise(memory.data(), memory.bytes(), MADV_HUGEPAGE));  // only advice
#endif
#if defined(MADV_POPULATE_WRITE)
  if (::madvise(memory.data(), memory.bytes(), MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    throw_errno(fmt::format("cannot allocate {} bytes", bytes));
  }
#endif
  return {std::move(memory), NodeWindow::lead(rank)};
}

// The node's ranks meet once per window, as they did for their segment: descriptors pass over an authenticated Unix
// socket, which needs no permission that a container may lack.
class Allocation {
 public:
  Allocation(detail::CommunicatorImpl& impl, std::size_t bytes) : impl_(impl), bytes_(bytes) {
    for (int rank = 0; rank < impl.world_size(); ++rank) {
      if (impl.team().shares_memory(rank)) ranks_.push_back(rank);
    }
  }

  HostWindow run() {
    const auto advertisements = impl_.all_gather_bytes(advertise());
    meet(advertisements);
    const auto obstacles = impl_.all_gather_bytes(std::as_bytes(std::span(obstacle_)));
    if (const auto rank = find_obstacle(obstacles)) {
      if (impl_.rank() == ranks_.front()) {
        const Bytes& theirs = obstacles[static_cast<std::size_t>(*rank)];
        log::warn("rank {} cannot share a window of {} bytes with its node, whose ranks go on copying: {}", *rank,
                  bytes_, std::string_view(reinterpret_cast<const char*>(theirs.data()), theirs.size()));
      }
      return make_private(impl_.rank(), bytes_);
    }
    if (!window_) return make_private(impl_.rank(), bytes_);  // alone on its node
    for (std::size_t i = 0; i < ranks_.size(); ++i) static_cast<void>(window_->populate(static_cast<int>(i)));
    std::byte* const data = window_->own();
    const std::uint32_t id = impl_.windows()->add(std::move(window_));
    return {impl_.windows(), id, data};
  }

 private:
  template <class Body>
  void attempt(Body body) {
    if (!obstacle_.empty() || ranks_.size() == 1) return;
    try {
      body();
    } catch (const std::exception& error) {
      obstacle_ = error.what();
    }
  }

  Bytes advertise() {
    const Bootstrap& bootstrap = impl_.bootstrap();
    attempt([&] {
      meeting_.emplace(impl_.rank(), fmt::format("{}@{}/window", bootstrap.name, bootstrap.generation),
                       bootstrap.authenticator);
    });
    return meeting_ ? meeting_->advertisement() : Bytes{};
  }

  void meet(const std::vector<Bytes>& advertisements) {
    for (const int rank : ranks_) {
      if (advertisements[static_cast<std::size_t>(rank)].empty()) return;  // it will say why
    }
    attempt([&] {
      const int blocks = static_cast<int>(ranks_.size());
      const std::size_t total = NodeWindow::total_bytes(blocks, bytes_);
      const auto deadline =
          std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(impl_.options().timeout, kPatience);
      const NodeDescriptors descriptors = meeting_->meet(ranks_, advertisements, total, deadline);
      auto window = std::make_shared<NodeWindow>(map(descriptors.segment, total, NodeWindow::alignment(bytes_)), blocks,
                                                 impl_.team().own_index(), bytes_);
      if (!window->populate(impl_.team().own_index())) throw Error(ErrorCode::system, "there is no memory for it");
      window_ = std::move(window);
    });
  }

  std::optional<int> find_obstacle(const std::vector<Bytes>& obstacles) const {
    for (const int rank : ranks_) {
      if (!obstacles[static_cast<std::size_t>(rank)].empty()) return rank;
    }
    return std::nullopt;
  }

  detail::CommunicatorImpl& impl_;
  const std::size_t bytes_;
  std::vector<int> ranks_;  // that share memory with this one, itself included
  std::optional<NodeMeeting> meeting_;
  std::shared_ptr<NodeWindow> window_;
  std::string obstacle_;
};

}  // namespace

HostWindow allocate_on_host(detail::CommunicatorImpl& impl, std::size_t bytes) {
  // Threads reach one another's memory anyway.
  if (!impl.team().monitor() || impl.world_size() == 1) return make_private(impl.rank(), bytes);
  return Allocation(impl, bytes).run();
}

}  // namespace rondo::comm
