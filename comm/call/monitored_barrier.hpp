// SPDX-License-Identifier: Apache-2.0
// A barrier that says who did not come and leaves the communicator usable: ranks tell each other of their coming beside
// the collectives, so that nothing of it is left where those run. Rank 0 waits for all and tells them how it ended. Run
// by one thread at a time.
#pragma once
#include <chrono>
#include <cstdint>

#include "comm/team/team.hpp"

namespace rondo::comm {

class MonitoredBarrier {
 public:
  explicit MonitoredBarrier(Team& team) : team_(team) {}
  // timeout: somebody did not come; nothing else has happened. Otherwise the communicator's failure.
  void run(std::chrono::milliseconds timeout, bool waits_for_all);

 private:
  using Time = std::chrono::steady_clock::time_point;
  void lead(bool waits_for_all);
  void follow();
  enum class State : std::uint8_t { present, absent, gave_up };
  State look_at(int peer) const;
  State await(int peer) const;
  bool sleep(int peer) const;
  [[noreturn]] void give_up();

  Team& team_;
  std::uint64_t count_ = 0;  // of these barriers, this rank's
  std::chrono::milliseconds timeout_{};
  Time until_{};
};

}  // namespace rondo::comm
