// SPDX-License-Identifier: Apache-2.0
// rondorun --watch: what each rank is in, below all output where that is a terminal, elsewhere as lines now and then.
// Runs on the event loop alone.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/process/event_loop.hpp"
#include "tools/rondo/snapshot.hpp"
#include "tools/rondorun/voice.hpp"

namespace rondo::launcher {

class Watch {
 public:
  using Done = std::function<void(const records::Snapshot&)>;
  struct Job {
    std::function<bool()> runs;      // its ranks do, and nothing has failed
    std::function<void(Done)> look;  // `done` is called later
    bool draws = true;               // the terminal is the launcher's alone
  };
  Watch(process::EventLoop& loop, Voice& voice, Job job) : loop_(loop), voice_(voice), job_(std::move(job)) {}
  void start();

 private:
  void look_in(process::EventLoop::Clock::duration delay);
  void show(const records::Snapshot& snapshot);
  void draw(std::vector<std::string> rows);

  process::EventLoop& loop_;
  Voice& voice_;
  Job job_;
};

}  // namespace rondo::launcher
