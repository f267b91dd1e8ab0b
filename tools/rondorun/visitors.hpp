// SPDX-License-Identifier: Apache-2.0
// Who looks at this job while it runs (rondo top): the same user on this host. Costs nothing while nobody does. Runs on
// the event loop alone.
#pragma once
#include <sys/types.h>

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "comm/base/fd.hpp"
#include "runtime/process/event_loop.hpp"

namespace rondo::launcher {

class Visitors {
 public:
  using Answer = std::function<void(std::string snapshot)>;
  // Asks for a snapshot, which may come later.
  Visitors(process::EventLoop& loop, std::function<void(Answer)> look) : loop_(loop), look_(std::move(look)) {}
  ~Visitors();
  Visitors(const Visitors&) = delete;
  Visitors& operator=(const Visitors&) = delete;

  void open(pid_t launcher);  // where the system has no socket to give, nobody can look

 private:
  struct Visitor {
    Fd socket{};
    std::string unsent{};
    bool waits = false;  // for an answer
  };
  void watch_door();
  void leave_door_for_a_while();
  void accept();
  void read(const std::shared_ptr<Visitor>& visitor);
  void send(const std::shared_ptr<Visitor>& visitor);
  void leave(const std::shared_ptr<Visitor>& visitor);

  process::EventLoop& loop_;
  std::function<void(Answer)> look_;
  Fd door_;
  bool door_watched_ = false;
  std::list<std::shared_ptr<Visitor>> visitors_;
};

}  // namespace rondo::launcher
