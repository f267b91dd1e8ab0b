// SPDX-License-Identifier: Apache-2.0
// The same in a terminal emulator that is not ours.
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

// A tmux server of our own, with one pane of 60 columns and 10 rows.
class Pane {
 public:
  explicit Pane(const std::string& command)
      : socket_("rondo-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count)) {
    const auto started =
        run(tmux({"-f", "/dev/null", "new-session", "-d", "-x", "60", "-y", "10", command + "; " + "sleep 60"}));
    INFO(started.err);
    REQUIRE(started.code == 0);
  }
  ~Pane() { run(tmux({"kill-server"})); }
  void type(const std::string& key) const { run(tmux({"send-keys", key})); }
  // The pane's text once it is `expected`; else what it was at the deadline.
  std::string text_when(const std::string& expected) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      std::string text = run(tmux({"capture-pane", "-p"})).out;
      text.erase(text.find_last_not_of('\n') + 1);
      if (text == expected || std::chrono::steady_clock::now() > deadline) return text;
    }
  }

 private:
  std::vector<std::string> tmux(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"tmux", "-L", socket_});
    return arguments;
  }
  static inline int count = 0;  // a server that ends still has its socket
  std::string socket_;
};

bool has_tmux() {
  const bool has = run({"sh", "-c", "command -v tmux"}).code == 0;
  if (!has) std::cout << "skipped: there is no tmux\n";
  return has;
}

}  // namespace

TEST_CASE("tmux shows four bars as four rows, and a prompt below them that can be answered") {
  if (!has_tmux()) return;
  const Pane pane("OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= " + tool("rondorun") +
                  " -n 4 sh -c 'for i in 10 20 30; do printf \"\\r$i%% of $RANK \"; done; "
                  "if [ $RANK = 0 ]; then printf \"Go on? \" >&2; read answer; echo \"$answer!\" >&2; "
                  "else exec sleep 60; fi'");
  const std::string bars = "[0] 30% of 0\n[1] 30% of 1\n[2] 30% of 2\n[3] 30% of 3\n";
  CHECK(pane.text_when(bars + "[0] Go on?") == bars + "[0] Go on?");
  pane.type("y");
  CHECK(pane.text_when(bars + "[0] Go on? y") == bars + "[0] Go on? y");
  pane.type("C-c");
}

TEST_CASE("tmux shows the last words and the sentence of a job that Ctrl-C ends") {
  if (!has_tmux()) return;
  const Pane pane("OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= " + tool("rondorun") +
                  " sh -c 'printf \"step 3\"; exec sleep 60'");
  CHECK(pane.text_when("[0] step 3") == "[0] step 3");
  pane.type("C-c");
  const std::string end = "[0] step 3\nrondorun: stopped by signal 2 (Interrupt)";
  CHECK(pane.text_when(end) == end);
}
