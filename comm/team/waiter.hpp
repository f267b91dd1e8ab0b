// SPDX-License-Identifier: Apache-2.0
// The one place where a rank waits for others: spins while every rank has a core, yields when not, then sleeps until
// its doorbell or a descriptor wakes it, or for naps where nothing does. Between sleeps it looks for failures,
// departures and disagreement, and minds the deadline.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <poll.h>

#include "comm/base/machine.hpp"
#include "comm/base/pulse.hpp"
#include "comm/base/system_call.hpp"
#include "comm/base/ticks.hpp"
#include "comm/setup/config.hpp"
#include "comm/team/team.hpp"

namespace rondo::comm {

struct Blocked {  // what the caller cannot go on without
  int peer;
  Wake wake;
};

// Looks whether those live who are waited for. Somebody waits for whoever dies, and tells all. A look takes some
// microseconds: of many ranks a few are looked at.
class DeathWatch {
 public:
  void look(Team& team, std::span<const Blocked> blocked);  // throws the communicator's failure

 private:
  std::size_t next_ = 0;
};

// Looks whether the host still answers of a rank that has left, while what it sent last is still to come: its other
// connections have ended, and nobody watches them.
class FarewellWatch {
 public:
  void look(Team& team, std::span<const Blocked> blocked);  // Error(peer_lost)

 private:
  std::optional<Pulse> pulse_;
  int socket_ = -1;
};

class Waiter {
 public:
  Waiter(Team& team, const Config& config);

  // What is being waited for from now on. Collectives compare signatures with every rank; messages between two do not.
  void begin(const Signature& signature, bool collective, std::chrono::milliseconds timeout);
  void progressed() {
    if (round_ != 0) rest();
  }
  // Nothing moved: waits a little. The caller tries again after every return. Throws the communicator's failure.
  [[gnu::always_inline]] void idle(std::span<const Blocked> blocked);
  // Nothing is waited for: gives the core away once. Who shares it with a program that computes sleeps when it waits
  // next. What leads here from a short call is inlined, see system_call.hpp.
  [[gnu::always_inline]] void yield();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kSliceMicroseconds = 1000;  // of a core, about the shortest that the kernel hands out
  static constexpr std::uint64_t kLeastTicksOfSlice = 20'000;  // by the slowest counter that we know, 20 MHz
  static constexpr std::uint64_t kSpinsPerYield = 64;
  static constexpr std::uint64_t kCallsPerYield = 16;  // a look that calls the kernel takes as long as many pauses
  bool took_a_slice(std::uint64_t before) const;
  void rest();
  void disarm();
  void sleep(std::span<const Blocked> blocked);
  void inspect(std::span<const Blocked> blocked);
  void look_for_mismatch();
  template <class Look>
  void look(Look look);
  void look_for_departures(std::span<const Blocked> blocked);
  struct Report {
    std::vector<int> ranks;  // that hold the call up
    std::string sentence;
  };
  Report report(std::span<const Blocked> blocked) const;
  [[noreturn]] void fail(const Error& error);

  Team& team_;
  std::uint64_t spins_, yields_;
  TickScale scale_;
  Signature signature_{};
  bool collective_ = false;
  std::chrono::milliseconds timeout_{};
  std::uint64_t round_ = 0;
  bool armed_ = false;  // our line says that we sleep
  bool known_ = false;  // and that we wait
  bool alone_ = false;  // and no other thread of this process may call anything
  Clock::duration nap_{};
  int suspect_ = -1;     // departed when we last looked; if nothing of it has come since, it is the culprit
  bool timing_ = false;  // the times below are valid
  bool reported_ = false;
  Clock::time_point started_, next_inspection_, next_announcement_;
  std::chrono::milliseconds announce_every_{};
  DeathWatch death_watch_;
  FarewellWatch farewell_watch_;
  std::vector<pollfd> polled_;
};

inline void Waiter::idle(std::span<const Blocked> blocked) {
  team_.failure().check();
  ++round_;
  // Even with a core for everybody two ranks may have landed on one: then only a yield lets the other one run.
  const bool calls = !blocked.empty() && blocked.front().wake.by == Wake::By::descriptor;
  if (round_ <= spins_ && round_ % (calls ? kCallsPerYield : kSpinsPerYield) != 0) return pause_cpu();
  if (round_ <= spins_ + yields_) return yield();
  sleep(blocked);
}

// Whoever keeps a core for as long as the kernel lets one computes, and would be given it again and again; who sleeps
// is woken in its place.
inline void Waiter::yield() {
  const std::uint64_t before = read_ticks();
  yield_cpu();
  if (read_ticks() - before > kLeastTicksOfSlice && took_a_slice(before)) round_ = spins_ + yields_;
}

}  // namespace rondo::comm
