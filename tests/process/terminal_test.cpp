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
