// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client_impl.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "comm/base/duration.hpp"
#include "rendezvous/socket.hpp"

namespace rondo::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kGrace{1000};  // for the server's word on a deadline to arrive
constexpr std::chrono::milliseconds kSendWithin{10'000};

}  // namespace

void Client::Impl::put(std::string_view frame) {
  const Deadline deadline = Clock::now() + kSendWithin;
  while (!frame.empty()) {
    const ssize_t sent = ::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      frame.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) throw_errno(fmt::format("the connection to the rendezvous server at {} broke", server_));
    pollfd waiting{fd_.get(), POLLOUT, 0};
    if (::poll(&waiting, 1, poll_ms(deadline)) == 0) {
      throw Error(ErrorCode::timeout, fmt::format("the rendezvous server at {} takes no more requests", server_));
    }
  }
}

// A frame that went out in part makes the connection useless, so any failure ends it.
void Client::Impl::send(std::uint64_t id, Pending& pending) {
  const std::lock_guard lock(sending_);
  if (!connected_ || pending.sent_over == connection_) return;
  pending.sent_over = connection_;
  send_now(id, pending.request);
}

void Client::Impl::send_now(std::uint64_t id, const proto::Request& request) {
  try {
    put(session_->request(id, request));
  } catch (const Error& error) {
    connected_ = false;
    ::shutdown(fd_.get(), SHUT_RDWR);  // which the reader sees
    if (!awaits_return()) break_off(Error(ErrorCode::peer_lost, error.what()));
  }
}

void Client::Impl::break_off(const Error& error) {
  const std::lock_guard lock(waiting_);
  if (!broken_) broken_ = error;
  for (const auto& [id, pending] : pending_) pending->done.notify_all();
}

void Client::Impl::Pending::set_time() {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  request.set_timeout_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(left, 0)));
}

proto::Reply Client::Impl::call(proto::Request request, Deadline deadline) {
  if (!origin_.is_here()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the connection to the rendezvous server at {} is of the process that forked this one; "
                            "connect anew here",
                            server_));
  }
  Pending pending;
  pending.request = std::move(request);
  pending.deadline = at_most_for_ever(deadline);
  pending.set_time();
  std::unique_lock lock(waiting_);
  const std::uint64_t id = ++last_id_;
  pending_.emplace(id, &pending);
  lock.unlock();
  send(id, pending);
  lock.lock();
  // Where this process stood still, the answer may be there for the reader, which did so, too.
  auto until = std::max(pending.deadline, Clock::now()) + kGrace;
  const auto is_over = [&] { return pending.reply.has_value() || broken_.has_value(); };
  while (!pending.done.wait_until(lock, until, is_over) && stood_still(until, Clock::now()).count() != 0)
    until = Clock::now() + kGrace;
  pending_.erase(id);
  if (!pending.reply && broken_) throw *broken_;
  if (!pending.reply) throw too_late();
  if (pending.reply->has_failure()) {
    Error error = error_of(pending.reply->failure());
    if (pending.reply->failure().busy()) throw NotYet(error.error_code(), error.what(), error.culprit());
    throw error;
  }
  return std::move(*pending.reply);
}

Error Client::Impl::too_late() const {
  if (!away_) {
    return {ErrorCode::timeout,
            fmt::format("the rendezvous server at {} did not answer within the deadline; see whether its process "
                        "still runs and the network to it is up",
                        server_)};
  }
  const auto for_s = std::chrono::duration<double>(std::chrono::system_clock::now() - away_->since).count();
  return {
      ErrorCode::timeout,
      fmt::format("the rendezvous server at {} has been away since {:%Y-%m-%d %H:%M:%S}, for {:.1f} s: {}; start it "
                  "again at this address",
                  server_, fmt::localtime(std::chrono::system_clock::to_time_t(away_->since)), for_s, away_->reason)};
}

void Client::Impl::deliver(std::vector<ClientSession::Answer>& answers) {
  for (ClientSession::Answer& answer : answers) {
    if (answer.request == 0) {
      throw Error(ErrorCode::peer_lost, fmt::format("the rendezvous server at {} closed the connection: {}", server_,
                                                    answer.reply.failure().sentence()));
    }
    const std::lock_guard lock(waiting_);
    const auto found = pending_.find(answer.request);
    if (found == pending_.end()) continue;  // its caller has given up
    written_.note(found->second->request, answer.reply);
    found->second->reply = std::move(answer.reply);
    found->second->done.notify_all();
  }
}

void Client::Impl::read_some() {
  std::byte buffer[16384];
  const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    const int error = got == 0 ? 0 : errno;
    throw Error(ErrorCode::peer_lost,
                fmt::format("the rendezvous server at {} is gone: {}", server_, describe_end(fd_.get(), error)));
  }
  std::string to_send;
  std::vector<ClientSession::Answer> answers;
  session_->received({buffer, static_cast<std::size_t>(got)}, to_send, answers);
  deliver(answers);
}

void Client::Impl::beat() {
  proto::Request request;
  request.mutable_heartbeat();
  const std::lock_guard lock(sending_);
  if (connected_) send_now(0, request);
}

void Client::Impl::read_until_broken() {
  Deadline next_beat = Deadline::max();
  while (!stopping_) {
    const int beat_ms = beat_ms_;
    if (beat_ms > 0 && next_beat == Deadline::max()) next_beat = Clock::now();
    if (Clock::now() >= next_beat) {
      beat();
      next_beat = Clock::now() + std::chrono::milliseconds(beat_ms);
    }
    pollfd waiting[2] = {{fd_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    const int ready = ::poll(waiting, 2, beat_ms > 0 ? poll_ms(next_beat) : -1);
    if (ready < 0 && errno != EINTR) throw_errno("cannot wait for the rendezvous server");
    std::uint64_t wakes = 0;
    if (ready > 0 && waiting[1].revents != 0 && ::read(stop_.get(), &wakes, sizeof wakes) < 0) continue;
    if (ready > 0 && waiting[0].revents != 0) read_some();
  }
}

void Client::Impl::read() {
  try {
    for (bool again = true; again;) {
      try {
        read_until_broken();
        again = false;
      } catch (const Error& error) {
        if (!awaits_return()) throw;
        again = await_return(error.what());
      }
    }
  } catch (const Error& error) {
    break_off(error);
  } catch (const std::exception& error) {
    break_off(Error(ErrorCode::system, fmt::format("the rendezvous client: {}", reason_of(error))));
  }
}

void Client::Impl::leave() noexcept {
  stopping_ = true;
  try {
    proto::Request request;
    request.mutable_leave();
    const std::lock_guard lock(sending_);
    if (!connected_) return;
    const std::string frame = session_->request(0, request);
    // Best effort: a server that hears nothing sees the connection end.
    if (::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  } catch (const std::exception& error) {
    log::debug("rendezvous client: {}", error.what());
  }
}

}  // namespace rondo::rendezvous
