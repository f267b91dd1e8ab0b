// SPDX-License-Identifier: Apache-2.0
// What the launcher says to people, and the two streams in which it stands among the lines of its ranks. Runs on the
// event loop alone.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/process/event_loop.hpp"
#include "tools/rondorun/output.hpp"

namespace rondo::launcher {

inline constexpr std::string_view kSpoken = "rondorun: ";  // so a launcher's own lines begin

class Voice {
 public:
  Voice(process::EventLoop& loop, Color color);

  Sink& out() { return out_; }
  Sink& err() { return *err_; }
  void say(const std::string& sentence, const std::vector<std::string>& lines_of_ranks = {});
  // A log takes no more, for this error.
  void say_log_ends(const std::string& file, int reason) { leave_out("the log " + file, reason, err_); }
  bool left_out() const { return left_out_; }  // something that ranks wrote
  std::size_t lines() const;                   // of all output so far
  void when_written(std::function<void()> handler);

 private:
  void leave_out(const std::string& what, int reason, Sink* teller);

  Sink out_;
  std::unique_ptr<Sink> own_err_;  // none when stdout and stderr are one file
  Sink* err_;
  bool left_out_ = false;
};

}  // namespace rondo::launcher
