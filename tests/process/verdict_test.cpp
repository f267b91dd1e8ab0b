// SPDX-License-Identifier: Apache-2.0
// What the launcher says about how a job ended.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

Running::How quiet() { return {.environment = {"OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES="}}; }

std::vector<std::string> shell(const std::string& ranks, const std::string& script) {
  return rondorun({"--nproc-per-node", ranks, "--", "sh", "-c", script});
}

// Without what differs from run to run: pids, and how long ago.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    std::string line = text.substr(begin, end - begin);
    for (auto pid = line.find(" (pid "); pid != line.npos; pid = line.find(" (pid "))
      line.erase(pid, line.find(')', pid) + 1 - pid);
    if (const auto ago = line.find(" ago"); ago != line.npos) {
      const auto comma = line.rfind(", ", ago);
      line.replace(comma + 2, ago - comma - 2, "TIME");
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("the sentence comes when a rank fails, and last, with its last lines, when others wrote after that") {
  const auto ended =
      run(shell("2",
                "if [ $RANK = 1 ]; then for i in 1 2 3 4 5 6; do echo words $i >&2; done; kill -9 $$; "
                "fi; exec 3>&2 2>/dev/null; trap 'echo a survivor >&3; exit 1' TERM; while :; do sleep 0.02; done"),
          quiet());
  CHECK(ended.code == 128 + SIGKILL);
  const std::string sentence = "rondorun: rank 1 was killed by signal 9 (Killed)";
  CHECK(lines_of(ended.err) == std::vector<std::string>{
                                   "[1] words 1",
                                   "[1] words 2",
                                   "[1] words 3",
                                   "[1] words 4",
                                   "[1] words 5",
                                   "[1] words 6",
                                   sentence,
                                   "[0] a survivor",
                                   sentence + ", TIME ago; its last lines were:",
                                   "rondorun:   words 2",
                                   "rondorun:   words 3",
                                   "rondorun:   words 4",
                                   "rondorun:   words 5",
                                   "rondorun:   words 6",
                               });
}

TEST_CASE("what many ranks report of one is said once for all of them") {
  const auto ended = run(shell("16",
                               "exec 3>&2 2>/dev/null; trap 'echo rank $RANK: rank 5 is lost >&3; exit 1' TERM; "
                               "if [ $RANK = 5 ]; then sleep 0.3; kill -9 $$; fi; while :; do sleep 0.02; done"),
                         quiet());
  CHECK(ended.code == 128 + SIGKILL);
  int lines = 0, reports = 0;
  for (const auto& line : lines_of(ended.err)) {
    if (!line.ends_with(": rank 5 is lost")) continue;
    ++lines;
    reports += line.find(" ranks report: rank N") == line.npos ? 1 : std::stoi(line.substr(line.find("] ") + 2));
  }
  INFO(ended.err);
  CHECK(reports == 15);
  CHECK(lines < 8);  // one, but for those that a busy machine makes late
}

TEST_CASE("where nobody wrote after it, the sentence comes once") {
  const auto ended = run(shell("3", "echo words >&2; [ $RANK != 1 ] || exit 3; exec sleep 60"), quiet());
  const auto lines = lines_of(ended.err);
  CHECK(std::count(lines.begin(), lines.end(), "rondorun: rank 1 exited with code 3") == 1);
  CHECK(lines.size() == 4);
}

TEST_CASE("who ended with exit code 0 before a rank failed is named, as the culprit if that one says so") {
  const std::string early = "[ $RANK = 0 ] || exit 0; sleep 0.3; ";
  const auto fact = run(shell("3", early + "exit 5"), quiet());
  CHECK(fact.code == 5);
  CHECK(
      lines_of(fact.err) ==
      std::vector<std::string>{"rondorun: rank 0 exited with code 5; before it ranks 1-2 had ended with exit code 0"});
  const auto culprit = run(shell("3", early + "echo 'error: rank 2 is lost'; exit 5"), quiet());
  CHECK(lines_of(culprit.err) ==
        std::vector<std::string>{
            "rondorun: rank 2 ended with exit code 0 while other ranks needed it: rank 0 exited with code 5"});
  const auto killed = run(shell("2", early + "kill -9 $$"), quiet());
  CHECK(lines_of(killed.err) == std::vector<std::string>{"rondorun: rank 0 was killed by signal 9 (Killed)"});
}

TEST_CASE("after Ctrl-C the launcher says whom it waits for, unless they end soon") {
  auto how = quiet();
  how.one_stream = true;
  Running job(shell("2", "trap '' INT; echo ready; while :; do sleep 0.05; done"), how);
  job.lines("ready", 2);
  job.signal(SIGINT);
  const std::string expected =
      "rondorun: waiting for the end of ranks 0-1 after signal 2 (Interrupt); killed 5 s after it, at once after "
      "another SIGINT";
  job.lines(expected, 1);
  job.signal(SIGINT);
  const auto ended = job.wait();
  CHECK(ended.code == 128 + SIGINT);
  CHECK(ended.seconds < 5);
}
