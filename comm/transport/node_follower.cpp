// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/node_gathering.hpp"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>

#include "comm/base/system_error.hpp"
#include "comm/transport/addresses.hpp"
#include "comm/transport/sockets.hpp"

namespace rondo {
namespace {

constexpr std::chrono::milliseconds kBacklogPause{5};
// The leader has the same deadline; its verdict, which knows who is missing, comes a moment after it.
constexpr std::chrono::milliseconds kVerdictGrace{100};

}  // namespace

NodeDescriptors NodeFollower::run(Store::Deadline deadline, const Lookout& lookout) {
  asio::co_spawn(io_, join(), [this](std::exception_ptr failure) {
    failure_ = failure;
    io_.stop();
  });
  run_until(io_, deadline + kVerdictGrace, lookout);
  if (failure_) std::rethrow_exception(failure_);
  if (!verdict_) throw_leader(ErrorCode::timeout, "did not finish in time; does it run, and as the same user?");
  if (verdict_->kind != NodeFrame::Kind::complete) {
    verdict_->raise(static_cast<int>(encounter_.from), membership_.name);
  }
  NodeDescriptors descriptors;
  descriptors.segment = std::move(received_.front());
  for (std::size_t i = 1; i < received_.size(); ++i) descriptors.doorbells.push_back(std::move(received_[i]));
  descriptors.peers.push_back({static_cast<int>(encounter_.to), release(*socket_)});
  return descriptors;
}

Awaitable<void> NodeFollower::join() {
  std::string broken;
  try {
    co_await connect();
    auto greeting = std::make_shared<const Greeting>(membership_, encounter_);
    const auto greeted = co_await greet(socket_, greeting);
    if (!greeted) throw_leader(ErrorCode::corrupt_message, "could not prove that it belongs to this job");
    co_await asio::async_write(*socket_, asio::buffer(greeted->proof), asio::use_awaitable);
    co_await listen_to_leader();
  } catch (const boost::system::system_error& error) {
    broken = error.code().message();
  } catch (const Error& error) {
    if (error.culprit() >= 0 || error.error_code() == ErrorCode::system) throw;
    if (error.error_code() != ErrorCode::peer_lost)
      throw_leader(error.error_code(), fmt::format("says what it should not: {}", error.what()));
    broken = error.what();
  }
  if (!broken.empty()) {
    throw_leader(ErrorCode::peer_lost,
                 fmt::format("closed the connection ({}); is it of this job, with the same secret?", broken));
  }
}

Awaitable<void> NodeFollower::connect() {
  Fd fd = make_socket(AF_UNIX);
  const UnixAddress address = abstract_address(encounter_.to_id);
  while (::connect(fd.get(), address.get(), address.bytes) != 0) {
    const int reason = errno;
    if (reason != EAGAIN && reason != EINTR) {
      throw_leader(ErrorCode::peer_lost,
                   fmt::format("is not to be reached on this node ({}); is it gone, or in another network namespace?",
                               std::strerror(reason)));
    }
    co_await pause(io_, kBacklogPause);  // its backlog is full
  }
  if (!is_same_user(fd)) throw_leader(ErrorCode::corrupt_message, "runs as another user");
  socket_ = adopt(io_, std::move(fd), AF_UNIX);
}

Awaitable<void> NodeFollower::listen_to_leader() {
  std::array<std::byte, NodeFrame::kBytes> bytes{};
  while (!verdict_) {
    co_await socket_->async_wait(StreamSocket::wait_read, asio::use_awaitable);
    auto descriptors = try_receive_message(socket_->native_handle(), bytes);
    if (!descriptors) continue;
    NodeFrame frame = NodeFrame::decode(bytes);
    if (frame.kind != NodeFrame::Kind::descriptors) {
      verdict_ = std::move(frame);
      continue;
    }
    for (Fd& fd : *descriptors) received_.push_back(std::move(fd));
    if (descriptors->size() != frame.count || received_.size() > expected_) {
      throw_leader(ErrorCode::corrupt_message, "sent other descriptors than it announced");
    }
    if (received_.size() == expected_) {
      const std::array<std::byte, 1> word{};
      co_await asio::async_write(*socket_, asio::buffer(word), asio::use_awaitable);
    }
  }
}

void NodeFollower::throw_leader(ErrorCode code, const std::string& what) const {
  const int leader = static_cast<int>(encounter_.to);
  throw Error(code,
              fmt::format("rank {} of '{}': rank {}, the first of this node, {}", encounter_.from, membership_.name,
                          leader, what),
              leader);
}

}  // namespace rondo
