// SPDX-License-Identifier: Apache-2.0
// rondorun at a terminal: colours, and the keys that send signals.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/process/at_terminal.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("the prefix is coloured on a terminal") {
  AtTerminal job(rondorun({"echo", "hello"}));
  CHECK(job.read_until("").find("m[0]\033[0m hello") != std::string::npos);
  CHECK(job.wait() == 0);
}

TEST_CASE("the prefix's colour is a choice, and NO_COLOR is one") {
  const std::string colored = "\033[36m[0]\033[0m hello", plain = "[0] hello";
  const auto shown = [](const std::vector<std::string>& flags, const std::string& no_color) {
    auto command = rondorun(flags);
    command.insert(command.end(), {"echo", "hello"});
    AtTerminal job(command, {.environment = {"TERM=xterm", "NO_COLOR=" + no_color}});
    return job.read_until("");
  };
  CHECK(shown({}, "") == colored + "\r\n");
  CHECK(shown({}, "1") == plain + "\r\n");
  CHECK(shown({"--color", "never"}, "") == plain + "\r\n");
  CHECK(shown({"--color", "always"}, "1") == colored + "\r\n");
  CHECK(run(rondorun({"--color", "always", "echo", "hello"})).out == colored + "\n");
  CHECK(run(rondorun({"--color", "auto", "echo", "hello"})).out == plain + "\n");
  CHECK(run(rondorun({"--color", "red", "echo"})).err ==
        "rondorun: --color must be auto, always or never, not 'red'\n");
}

TEST_CASE("Ctrl-C reaches each rank once, and twice Ctrl-C kills") {
  AtTerminal job(rondorun({"--nproc-per-node", "2", "--", "sh", "-c",
                           "trap 'echo got INT' INT; echo ready; while :; do sleep 0.05; done"}));
  job.read_until("ready\r\n", 2);
  job.type("\003");
  job.read_until("got INT\r\n", 2);
  job.type("\003");
  const auto shown = job.read_until("");
  CHECK(occurrences(shown, "got INT\r\n") == 2);
  CHECK(job.wait() == 128 + SIGINT);
}

TEST_CASE("local rank 0 can read from the terminal") {
  AtTerminal job(rondorun({"--nproc-per-node", "2", "--", "sh", "-c", "echo ready; read line; echo \"got <$line>\""}));
  job.read_until("ready");
  job.type("hi\n");
  const auto shown = job.read_until("");
  CHECK(shown.find("got <hi>") != std::string::npos);
  job.wait();
}
