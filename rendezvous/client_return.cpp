// SPDX-License-Identifier: Apache-2.0
// A member's server went away: the reader connects again until it is back, or the client ends.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "rendezvous/client_impl.hpp"

namespace rondo::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFirstTry{5}, kLastTry{250};  // pauses between tries
constexpr std::chrono::seconds kTryWithin{1}, kAnswerWithin{5};

// A peer that closes is told of by the next recv().
bool wait_for(int fd, short events, Deadline deadline, std::string& reason) {
  pollfd waiting{fd, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&waiting, 1, poll_ms(deadline));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) reason = "it does not answer";
  return ready > 0;
}

}  // namespace

bool may_be_asked_twice(const proto::Request& request) {
  return request.has_get() || request.has_try_get() || request.has_survivors() || request.has_missing() ||
         request.has_give_up() || request.has_growth() || request.has_loss();
}

void Client::Impl::is_member(proto::Join join, const proto::Membership& given) {
  const bool joined_later = join.enlists() && given.rank() < static_cast<std::uint32_t>(given.job_ranks_size());
  join.set_rank(
      static_cast<std::int32_t>(joined_later ? given.job_ranks(static_cast<int>(given.rank())) : given.rank()));
  join.set_world_size(static_cast<std::int32_t>(joined_later ? given.job_world_size() : given.world_size()));
  join.set_generation(given.generation());
  join.set_again(true);
  const std::lock_guard lock(waiting_);
  membership_ = std::move(join);
  server_name_ = given.server();
}

std::vector<proto::Told> Client::Impl::inherit(Impl& before) {
  const std::scoped_lock lock(waiting_, before.waiting_);
  written_ = before.written_;
  return written_.all();
}

// All ranks meet it, and one says it.
void Client::Impl::log_of_job(const std::string& sentence) const {
  if (membership_->rank() == 0) return log::warn("{}", sentence);
  log::info("{}", sentence);
}

bool Client::Impl::await_return(const std::string& reason) {
  if (stopping_) return false;  // the server hangs up on who leaves
  {
    const std::lock_guard lock(sending_);
    connected_ = false;
  }
  std::string why = reason;
  log_of_job(fmt::format("{}; the job goes on, and looks for it", reason));
  for (auto pause = kFirstTry;; pause = std::min(2 * pause, kLastTry)) {
    {
      const std::lock_guard lock(waiting_);
      if (!away_) away_.emplace(Away{.since = std::chrono::system_clock::now()});
      away_->reason = why;
    }
    if (stopping_) return false;
    pollfd waiting{stop_.get(), POLLIN, 0};
    std::uint64_t wakes = 0;
    if (::poll(&waiting, 1, static_cast<int>(pause.count())) > 0 && ::read(stop_.get(), &wakes, sizeof wakes) < 0)
      continue;
    if (!stopping_ && try_to_return(why)) return true;
  }
}

// Whoever else listens there meanwhile is not the server.
bool Client::Impl::try_to_return(std::string& reason) {
  Fd fd = try_connect(endpoint_.host, endpoint_.port, Clock::now() + kTryWithin, reason);
  std::unique_ptr<ClientSession> session;
  try {
    if (fd) session = authenticate(fd.get(), endpoint_, Clock::now() + kTryWithin, reason);
  } catch (const Error& error) {
    reason = error.what();
  }
  bool knows_all = false;
  if (!session || !introduce(fd.get(), *session, reason, knows_all)) return false;
  take(std::move(fd), std::move(session), knows_all);
  return true;
}

// Who we are and, to a server that cannot know, what we wrote. False: it went away again.
bool Client::Impl::introduce(int fd, ClientSession& session, std::string& reason, bool& knows_all) {
  proto::Request join;
  std::vector<proto::Told> written;
  std::string before;
  {
    const std::lock_guard lock(waiting_);
    *join.mutable_join() = *membership_;
    written = written_.all();
    before = server_name_;
  }
  const auto joined = ask(fd, session, join, reason);
  if (!joined) return false;
  if (joined->has_failure()) {
    const Error error = error_of(joined->failure());
    throw Error(error.error_code(),
                fmt::format("the rendezvous server at {} came back without this job: {}", server_, error.what()),
                error.culprit());
  }
  knows_all = joined->membership().server() == before;
  for (const proto::Told& told : written) {
    if (knows_all) break;
    proto::Request request;
    *request.mutable_told() = told;
    const auto taken = ask(fd, session, request, reason);
    if (!taken) return false;
    if (taken->has_failure()) throw error_of(taken->failure());
  }
  const std::lock_guard lock(waiting_);
  server_name_ = joined->membership().server();
  return true;
}

// What a server that was there all the time may have done already is not asked of it twice.
void Client::Impl::take(Fd fd, std::unique_ptr<ClientSession> session, bool knows_all) {
  const std::lock_guard sending(sending_);
  fd_ = std::move(fd);
  session_ = std::move(session);
  ++connection_;
  connected_ = true;
  const std::lock_guard lock(waiting_);
  away_.reset();
  for (const auto& [id, pending] : pending_) {
    if (pending->reply) continue;
    if (knows_all && pending->sent_over != 0 && !may_be_asked_twice(pending->request)) {
      fill(*pending->reply.emplace().mutable_failure(),
           Error(ErrorCode::peer_lost,
                 fmt::format("the connection to the rendezvous server at {} broke during this call", server_)));
      pending->done.notify_all();
      continue;
    }
    pending->sent_over = connection_;
    pending->set_time();
    try {
      put(session_->request(id, pending->request));
    } catch (const Error& error) {  // it is gone again, which the reader sees
      log::debug("rendezvous client: {}", error.what());
      connected_ = false;
      ::shutdown(fd_.get(), SHUT_RDWR);
      return;
    }
  }
  log_of_job(fmt::format("the rendezvous server at {} is back", server_));
}

// One request over a connection that nobody else uses yet.
std::optional<proto::Reply> Client::Impl::ask(int fd, ClientSession& session, const proto::Request& request,
                                              std::string& reason) {
  const Deadline deadline = Clock::now() + kAnswerWithin;
  std::string frame = session.request(1, request), to_send;
  std::vector<ClientSession::Answer> answers;
  while (answers.empty()) {
    if (!wait_for(fd, frame.empty() ? POLLIN : POLLOUT, deadline, reason)) return std::nullopt;
    if (!frame.empty()) {
      const ssize_t sent = ::send(fd, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) frame.erase(0, static_cast<std::size_t>(sent));
      if (sent >= 0 || errno == EAGAIN || errno == EINTR) continue;
      reason = std::strerror(errno);
      return std::nullopt;
    }
    std::byte buffer[4096];
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) {
      reason = got == 0 ? "it closed the connection" : std::strerror(errno);
      return std::nullopt;
    }
    session.received({buffer, static_cast<std::size_t>(got)}, to_send, answers);
  }
  return std::move(answers.front().reply);
}

}  // namespace rondo::rendezvous
