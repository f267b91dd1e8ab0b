// SPDX-License-Identifier: Apache-2.0
#include "comm/base/pulse.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "comm/base/env.hpp"

namespace rondo {
namespace {

using std::chrono::milliseconds;

constexpr int kLooksInPatience = 35;
constexpr int kLeastLooks = 15;                 // where this thread had no core for long, time alone says little
constexpr int kWithoutProbes = 4;               // patiences: where segments are under way, the kernel does not probe
constexpr milliseconds kLongestInterval{1000};  // the kernel probes as often by itself
constexpr int kIdleS = static_cast<int>(kProbedAfter / milliseconds(1000));

void set(int socket, int level, int option, int value) { ::setsockopt(socket, level, option, &value, sizeof value); }

}  // namespace

std::chrono::milliseconds given_link_patience() {
  const auto given = env_number("RONDO_LINK_PATIENCE_MS", kLeastLinkPatience.count(), kMostLinkPatience.count());
  return given ? milliseconds(*given) : kLinkPatience;
}

void Pulse::prepare(int socket) {
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleS);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  // It overrides the number of probes after which the kernel would give up.
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kKernelPatience.count()));
}

void Pulse::probe(int socket) {
  ++probes_;
  system_.keep_probing(socket, true);
}

// One connection is enough to find out whether there is reason for doubt.
void Pulse::calm_down() {
  if (!doubted_since_) return;
  doubted_since_.reset();
  looks_ = probes_ = 0;
  for (std::size_t i = 1; i < sockets_.size(); ++i) system_.keep_probing(sockets_[i], false);
}

bool Pulse::is_silent(Time now) const {
  const auto doubted = now - *doubted_since_;
  if (looks_ < kLeastLooks) return false;
  return (probes_ >= kLeastLooks && doubted >= patience_) || doubted >= kWithoutProbes * patience_;
}

Pulse::State Pulse::look(Time now) {
  std::vector<int> idle;
  auto silence = milliseconds::max();
  for (const int socket : sockets_) {
    const auto condition = system_.silence_of(socket);
    if (!condition && socket == sockets_.front()) return State::ended;
    if (!condition) continue;
    silence = std::min(silence, condition->since);
    if (silence < kProbedAfter) break;
    if (!condition->under_way) idle.push_back(socket);
  }
  heard_at_ = std::max(heard_at_, now - silence);
  next_ = now + std::min(patience_ / kLooksInPatience, kLongestInterval);
  if (silence < kProbedAfter) {
    next_ += kProbedAfter - silence;
    calm_down();
    return State::alive;
  }
  if (!doubted_since_) doubted_since_ = now;
  ++looks_;
  for (const int socket : idle) probe(socket);
  return is_silent(now) ? State::silent : State::doubtful;
}

}  // namespace rondo
