// SPDX-License-Identifier: Apache-2.0
// Whether the host at the other end of idle TCP connections still answers. The kernel there does, whatever its process
// is busy with and even when it is stopped. A connection on which nothing is under way has no back-off: each probe is
// independent of those lost before it. Arithmetic: docs/decisions/silence.md. One thread at a time.
#pragma once
#include <chrono>
#include <optional>
#include <vector>

#include "comm/base/system.hpp"

namespace rondo {

inline constexpr std::chrono::milliseconds kLinkPatience{1750};
inline constexpr std::chrono::milliseconds kLeastLinkPatience{1500}, kMostLinkPatience{600'000};

// RONDO_LINK_PATIENCE_MS, or what is usual. Error(invalid_argument) where it is out of these bounds.
std::chrono::milliseconds given_link_patience();

// The kernel gives up a connection by itself after this, however few segments it has sent in vain: later than we do.
// (In microseconds it must fit in 31 bits, since that is how some kernels count.)
inline constexpr std::chrono::milliseconds kKernelPatience{2'000'000};
static_assert(kKernelPatience > 3 * kMostLinkPatience);

// How many patiences who leaves stays for what it has sent: TCP doubles its pauses where packets are lost. A host that
// is lost meanwhile is known long before.
inline constexpr int kPatiencesToLeave = 64;

// The kernel's first probe; it counts in whole seconds.
inline constexpr std::chrono::milliseconds kProbedAfter{1000};
// How long another host may be silent before it is known to be lost.
constexpr std::chrono::milliseconds longest_silence(std::chrono::milliseconds patience) {
  return kProbedAfter + patience + patience / 20;
}

class Pulse {
 public:
  using Time = System::Time;
  enum class State : char {
    alive,
    doubtful,  // it has left probes unanswered
    silent,    // for as long as our patience
    ended,     // the first connection: its process closed it or is gone
  };

  // Of a connected socket that shall be the first of a Pulse: the kernel probes, and leaves it to us to give up.
  static void prepare(int socket);

  // The sockets are to the same process, and open as long as this is used. Nothing, or little, is sent on them.
  Pulse(std::vector<int> sockets, std::chrono::milliseconds patience, System& system = System::real())
      : system_(system), sockets_(std::move(sockets)), patience_(patience) {}
  // Asks the kernel what it has heard, and has it probe. Not before next().
  State look(Time now);
  Time next() const { return next_; }
  int probes() const { return probes_; }       // unanswered ones
  Time heard_at() const { return heard_at_; }  // the last time that anything is known to have come
  std::optional<Time> doubted_since() const { return doubted_since_; }  // since when probes go unanswered

 private:
  void probe(int socket);
  void calm_down();
  bool is_silent(Time now) const;

  System& system_;
  std::vector<int> sockets_;
  std::chrono::milliseconds patience_;
  Time next_{}, heard_at_{};
  std::optional<Time> doubted_since_{};
  int looks_ = 0, probes_ = 0;  // since then
};

}  // namespace rondo
