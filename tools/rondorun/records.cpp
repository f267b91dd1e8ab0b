// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/records.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "comm/call/flight_records.hpp"

namespace rondo::launcher {

namespace {
constexpr std::chrono::seconds kRecordsLimit{1};  // a rank's monitor answers at once, unless it is stopped
}

void Records::clear() {
  for (const auto& [number, rank] : ranks_)
    if (rank.socket) loop_.forget(rank.socket.get());
  ranks_.clear();
}

Fd Records::open(int number) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  Rank& rank = ranks_[number];
  if (rank.socket) loop_.forget(rank.socket.get());  // of a process that has been replaced, and left it to another
  rank = Rank{};
  rank.socket.reset(ends[0]);
  loop_.watch(rank.socket.get(), EPOLLIN, [this, &rank] { take(rank); });
  return Fd(ends[1]);
}

void Records::ask() {
  for (auto& [number, rank] : ranks_) {
    const char word = comm::kAskForRecord;
    if (!rank.socket) continue;
    // One that has ended or does not read answers nothing, which latest() says.
    [[maybe_unused]] const ssize_t sent = ::send(rank.socket.get(), &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

// Who asks while another waits gets the same answers.
void Records::ask(std::function<void(const Answers&)> done) {
  waiting_.push_back(std::move(done));
  if (waiting_.size() > 1) return;
  asked_ = process::EventLoop::Clock::now();
  ask();
  ++questions_;
  tell_at(asked_ + kRecordsLimit);
  tell_if_answered();  // where there is nobody to ask
}

void Records::tell_if_answered() {
  const auto answered = [this](const auto& entry) { return !entry.second.socket || entry.second.answered >= asked_; };
  if (!waiting_.empty() && std::all_of(ranks_.begin(), ranks_.end(), answered))
    tell_at(process::EventLoop::Clock::now());  // and not while somebody reads
}

void Records::tell_at(Time time) {
  loop_.at(time, [this, question = questions_, alive = std::weak_ptr(alive_)] {
    if (alive.expired() || question != questions_) return;
    Answers answers;
    for (const auto& [number, rank] : ranks_)
      if (rank.answered >= asked_) answers[number] = rank.when_asked;
    for (const auto& done : std::exchange(waiting_, {})) done(answers);
  });
}

void Records::take_all() {
  for (auto& [number, rank] : ranks_)
    if (rank.socket) take(rank);
}

void Records::forget() {
  for (auto& [number, rank] : ranks_) {
    rank.of_failure.clear();
    rank.when_asked.clear();
    rank.answered = {};
  }
}

// A failure's document is the one that counts, as its communicator may be gone later.
void Records::take(Rank& rank) {
  std::string packet(1 + comm::kMostRecordBytes, '\0');
  for (;;) {
    const ssize_t got = ::recv(rank.socket.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == ECONNRESET)) continue;  // it ended with our question unread: once
    if (got < 0 && errno == EAGAIN) return tell_if_answered();
    if (got <= 0) break;
    const std::string_view text(packet.data() + 1, static_cast<std::size_t>(got) - 1);
    if (packet.front() == static_cast<char>(comm::RecordKind::failure)) rank.of_failure = text;
    if (packet.front() != static_cast<char>(comm::RecordKind::asked)) continue;
    rank.when_asked = text;
    rank.answered = process::EventLoop::Clock::now();
  }
  loop_.forget(rank.socket.get());
  rank.socket.reset();
  tell_if_answered();
}

std::string Records::latest(int number, Time asked) const {
  const auto found = ranks_.find(number);
  if (found == ranks_.end()) return {};
  const Rank& rank = found->second;
  if (!rank.of_failure.empty()) return rank.of_failure;
  return rank.answered >= asked ? rank.when_asked : "";
}

}  // namespace rondo::launcher
