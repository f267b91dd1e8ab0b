// SPDX-License-Identifier: Apache-2.0
// What the ranks of this node did last, as they say it themselves over a socket each: when a communicator of theirs
// fails, and when they are asked. Runs on the event loop alone.
#pragma once
#include <map>
#include <string>

#include "comm/base/fd.hpp"
#include "runtime/process/event_loop.hpp"

namespace rondo::launcher {

class Records {
 public:
  explicit Records(process::EventLoop& loop) : loop_(loop) {}
  ~Records();
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  Fd open(int rank);                   // the rank's end; none where the system has none to give
  void ask();                          // every rank; who has no communicator does not answer
  void take_all();                     // that has come by now
  void forget();                       // what has been said: it is about a failure of the past
  std::string latest(int rank) const;  // a document, as the rank wrote it; empty: none

 private:
  struct Rank {
    Fd socket{};
    std::string of_failure{}, when_asked{};
  };
  void take(Rank& rank);

  process::EventLoop& loop_;
  std::map<int, Rank> ranks_;
};

}  // namespace rondo::launcher
