// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/records.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "comm/call/flight_records.hpp"

namespace rondo::launcher {

Records::~Records() {
  for (const auto& [number, rank] : ranks_)
    if (rank.socket) loop_.forget(rank.socket.get());
}

Fd Records::open(int number) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  Rank& rank = ranks_[number];
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

void Records::take_all() {
  for (auto& [number, rank] : ranks_)
    if (rank.socket) take(rank);
}

void Records::forget() {
  for (auto& [number, rank] : ranks_) {
    rank.of_failure.clear();
    rank.when_asked.clear();
  }
}

// A failure's document is the one that counts, as its communicator may be gone later.
void Records::take(Rank& rank) {
  std::string packet(1 + comm::kMostRecordBytes, '\0');
  for (;;) {
    const ssize_t got = ::recv(rank.socket.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == ECONNRESET)) continue;  // it ended with our question unread: once
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) break;
    const std::string_view text(packet.data() + 1, static_cast<std::size_t>(got) - 1);
    if (packet.front() == static_cast<char>(comm::RecordKind::failure)) rank.of_failure = text;
    if (packet.front() == static_cast<char>(comm::RecordKind::asked)) rank.when_asked = text;
  }
  loop_.forget(rank.socket.get());
  rank.socket.reset();
}

std::string Records::latest(int number) const {
  const auto found = ranks_.find(number);
  if (found == ranks_.end()) return {};
  return found->second.of_failure.empty() ? found->second.when_asked : found->second.of_failure;
}

}  // namespace rondo::launcher
