// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/node_gathering.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "comm/base/log.hpp"
#include "comm/base/system_error.hpp"
#include "comm/transport/memory.hpp"
#include "comm/transport/sockets.hpp"
#include "comm/transport/wire.hpp"

namespace rondo {
namespace {

constexpr std::chrono::milliseconds kHandshakeLimit{5000};
constexpr std::chrono::milliseconds kFullPause{5};

}  // namespace

Fd make_doorbell() {
  Fd doorbell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!doorbell) throw_errno("cannot create an eventfd");
  return doorbell;
}

NodeLeader::NodeLeader(const Membership& membership, std::span<const int> ranks, std::span<const MeetingId> ids)
    : membership_(membership), rank_(ranks.front()), id_(ids.front()), absent_(ranks.size() - 1), unexamined_(absent_) {
  for (std::size_t i = 1; i < ranks.size(); ++i) followers_.push_back({ranks[i], ids[i]});
}

NodeDescriptors NodeLeader::run(Fd listener, std::size_t segment_bytes, Store::Deadline deadline,
                                const Lookout& lookout) {
  made_.segment = make_sealed_memfd("rondo-node", segment_bytes);
  descriptors_.push_back(made_.segment.get());
  for (std::size_t i = 0; i < kDoorbellsPerRank * (1 + followers_.size()); ++i) {
    made_.doorbells.push_back(make_doorbell());
    descriptors_.push_back(made_.doorbells.back().get());
  }
  start(accept_all(io_, std::move(listener), *this, unexamined_));
  if (absent_ > 0) run_until(io_, deadline, lookout);
  if (failure_) std::rethrow_exception(failure_);

  const NodeFrame end = verdict();
  const auto bytes = end.encode();
  for (const Follower& follower : followers_) {  // who is gone by now shows that by the end of its socket
    if (follower.socket) ::send(follower.socket->native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  if (end.kind != NodeFrame::Kind::complete) end.raise(rank_, membership_.name);
  for (Follower& follower : followers_) made_.peers.push_back({follower.rank, release(*follower.socket)});
  return std::move(made_);
}

void NodeLeader::start(Awaitable<void> task) {
  asio::co_spawn(io_, std::move(task), [this](std::exception_ptr failure) {
    if (!failure) return;
    failure_ = failure;
    io_.stop();
  });
}

void NodeLeader::accepted(Fd socket) {
  if (!is_same_user(socket)) return;
  const SharedSocket adopted = adopt(io_, std::move(socket), AF_UNIX);
  unexamined_.enter(adopted);
  start(receive(adopted));
}

bool NodeLeader::expects(const Encounter& encounter) const {
  const auto found = std::ranges::find(followers_, static_cast<int>(encounter.from), &Follower::rank);
  return found != followers_.end() && encounter.to == static_cast<std::uint32_t>(rank_) && encounter.to_id == id_ &&
         encounter.channel == MeetingChannel::node && encounter.from_id == found->id;
}

Awaitable<void> NodeLeader::receive(SharedSocket socket) {
  std::optional<Examined> examined;
  try {
    const TimeLimit limit(io_, socket, kHandshakeLimit);
    examined = co_await examine(socket, membership_, *this, unexamined_);
  } catch (const boost::system::system_error& error) {
    int others = 0;
    if (unexamined_.may_tell(others)) {
      log::info("rank {}: dropped a local connection{} in the middle of its handshake: {}", rank_, and_others(others),
                error.code().message());
    }
  }
  unexamined_.leave(socket);
  if (!examined) co_return;
  Follower& follower = *std::ranges::find(followers_, static_cast<int>(examined->encounter.from), &Follower::rank);
  if (follower.socket) co_return;
  follower.socket = socket;
  bool lost = false;
  try {
    co_await serve(follower);
  } catch (const boost::system::system_error&) {
    lost = true;
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::peer_lost) throw;
    lost = true;
  }
  if (lost) {
    lost_ = follower.rank;
    io_.stop();
  }
}

// Ends by an exception alone: once served, a follower says nothing more before the verdict.
Awaitable<void> NodeLeader::serve(Follower& follower) {
  StreamSocket& socket = *follower.socket;
  std::span<const int> rest(descriptors_);
  while (!rest.empty()) {
    const auto now = rest.first(std::min(rest.size(), kDescriptorsPerMessage));
    const NodeFrame frame{NodeFrame::Kind::descriptors, static_cast<std::uint32_t>(now.size()), {}};
    const auto bytes = frame.encode();
    if (try_send_message(socket.native_handle(), bytes, now)) {
      rest = rest.subspan(now.size());
    } else {
      co_await pause(io_, kFullPause);
    }
  }
  std::array<std::byte, 1> word{};
  co_await asio::async_read(socket, asio::buffer(word), asio::use_awaitable);
  follower.served = true;
  if (--absent_ == 0) io_.stop();
  co_await asio::async_read(socket, asio::buffer(word), asio::use_awaitable);
  throw Error(ErrorCode::peer_lost,
              fmt::format("rank {} spoke out of turn while the ranks of this node met", follower.rank), follower.rank);
}

NodeFrame NodeLeader::verdict() const {
  NodeFrame frame;
  if (lost_) return {NodeFrame::Kind::lost, 1, {*lost_}};
  if (absent_ == 0) return frame;
  frame.kind = NodeFrame::Kind::missing;
  frame.count = static_cast<std::uint32_t>(absent_);
  for (const Follower& follower : followers_) {
    if (!follower.served && frame.ranks.size() < NodeFrame::kMaxRanks) frame.ranks.push_back(follower.rank);
  }
  return frame;
}

}  // namespace rondo
