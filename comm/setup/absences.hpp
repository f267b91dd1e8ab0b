// SPDX-License-Identifier: Apache-2.0
// While survivors wait in their store for everybody who lives: tells it who will not come, though connected to it. A
// host that is cut off stays connected for seconds, and a stopped process for ever. And tells it again, ever more
// rarely: another server may have come in place of the one that knew.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "comm/setup/bootstrap.hpp"
#include "comm/team/team.hpp"

namespace rondo::comm {

class Absences {
 public:
  // Who is stopped is absent as well, or is waited for.
  enum class Stopped : std::uint8_t { absent, awaited };
  // Says to a store who they are.
  using Say = std::function<void(std::span<const int>)>;
  // All outlive this.
  Absences(const Team& failed, Say say, Stopped stopped = Stopped::absent);
  ~Absences();
  Absences(const Absences&) = delete;
  Absences& operator=(const Absences&) = delete;

 private:
  void run();
  bool look();  // whether there is more to tell
  bool tell();  // false: it was not heard

  const Team& failed_;
  const Say say_;
  const Stopped stopped_;
  std::vector<int> looks_;   // by rank: that saw it absent
  std::vector<int> absent_;  // for good
  std::mutex mutex_;
  std::condition_variable ends_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace rondo::comm
