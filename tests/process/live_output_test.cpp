// SPDX-License-Identifier: Apache-2.0
// What a person sees at a terminal while ranks write: bars, prompts, last words, and lines that stay whole.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/process/at_terminal.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

using Lines = std::vector<std::string>;

std::vector<std::string> shell(const std::string& ranks, const std::string& script, Lines flags = {}) {
  Lines arguments{"--nproc-per-node", ranks};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return rondorun(arguments);
}

// A file that ranks wait for.
class Gate {
 public:
  explicit Gate(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("rondo-gate-" + name + std::to_string(::getpid()))) {}
  ~Gate() { std::filesystem::remove(path_); }
  void open() const { std::ofstream(path_) << 'x'; }
  std::string wait() const { return "until [ -e " + path_.string() + " ]; do sleep 0.02; done; "; }

 private:
  std::filesystem::path path_;
};

Lines sorted(Lines lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Pids, which nobody knows before.
std::string without_pid(const std::string& line) {
  const auto begin = line.find(" (pid ");
  return begin == line.npos ? line : line.substr(0, begin) + line.substr(line.find(')', begin) + 1);
}

bool has(const Lines& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

}  // namespace

TEST_CASE("progress bars of four ranks: a row each, drawn over, below what is finished") {
  const Gate gate("bars");
  AtTerminal job(shell("4",
                       "for i in 10 20 30 40 50; do printf \"\\r$i%% of $RANK\"; done; "
                       "[ $RANK = 2 ] && echo a line of stderr >&2; " +
                           gate.wait() + "printf '\\r100%% of '; printf \"$RANK\\n\""));
  const Lines half{"[2] a line of stderr", "[0] 50% of 0", "[1] 50% of 1", "[2] 50% of 2", "[3] 50% of 3"};
  CHECK(job.screen_when([&](const Lines& screen) { return screen == half; }) == half);
  gate.open();
  const auto screen = job.screen_at_end();
  CHECK(screen.front() == "[2] a line of stderr");
  CHECK(sorted(screen) ==
        Lines{"[0] 100% of 0", "[1] 100% of 1", "[2] 100% of 2", "[2] a line of stderr", "[3] 100% of 3"});
  CHECK(job.wait() == 0);
}

TEST_CASE("bars are drawn at a bounded rate, however fast they are") {
  AtTerminal job(shell("2", "i=0; while [ $i -lt 20000 ]; do printf \"\\r$i\"; i=$((i+1)); done; echo"));
  const auto begin = std::chrono::steady_clock::now();
  const auto bytes = job.read_until("");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(sorted(screen_after(bytes, 24, 80)) == Lines{"[0] 19999", "[1] 19999"});
  // At most 20 frames a second, and one for each finished line; each has less than 100 bytes.
  CHECK(static_cast<double>(bytes.size()) < 100 * (20 * seconds + 10));
}

TEST_CASE("a prompt is seen before its newline, below other ranks' lines, and can be answered") {
  AtTerminal job(shell("2",
                       "if [ $RANK = 1 ]; then echo ready; exit; fi; printf 'Name? '; read name; "
                       "echo \"Hello, $name\""));
  const Lines asked{"[1] ready", "[0] Name?"};
  CHECK(job.screen_when([&](const Lines& screen) { return screen == asked; }) == asked);
  job.type("Ada\n");
  CHECK(job.screen_at_end() == Lines{"[1] ready", "[0] Name? Ada", "[0] Name? Hello, Ada"});
  CHECK(job.wait() == 0);
}

TEST_CASE("last words before a crash are seen, also without a newline") {
  SECTION("of a shell") {
    AtTerminal job(shell("1", "printf 'step 3 of 7'; kill -KILL $$"));
    auto screen = job.screen_at_end();
    for (auto& line : screen) line = without_pid(line);
    CHECK(has(screen, "[0] step 3 of 7"));
    CHECK(has(screen, "rondorun: rank 0 was killed by signal 9 (Killed)"));
    CHECK(job.wait() == 128 + SIGKILL);
  }
  SECTION("of a program with stdio: its whole lines, and what it flushed") {
    AtTerminal job(rondorun({tool("crasher")}));
    const auto screen = job.screen_at_end();
    CHECK(has(screen, "[0] a whole line"));
    AtTerminal flushing(rondorun({tool("crasher"), "flush"}));
    const auto flushed = flushing.screen_at_end();
    CHECK(has(flushed, "[0] a whole line"));
    CHECK(has(flushed, "[0] a part that is handed over"));
  }
  SECTION("into a pipe, with --pty always") {
    CHECK(run(rondorun({"--pty", "always", tool("crasher")})).out == "[0] a whole line\n");
  }
}

TEST_CASE("Ctrl-C during bars ends them as lines, with one sentence") {
  AtTerminal job(shell("2", "printf '\\r50%%'; exec sleep 60"));
  const Lines half{"[0] 50%", "[1] 50%"};
  CHECK(job.screen_when([&](const Lines& screen) { return screen == half; }) == half);
  job.type("\003");
  const auto screen = job.screen_at_end();
  CHECK(has(screen, "[0] 50%"));
  CHECK(has(screen, "[1] 50%"));
  CHECK(std::count(screen.begin(), screen.end(), "rondorun: stopped by signal 2 (Interrupt)") == 1);
  CHECK(job.wait() == 128 + SIGINT);
}

TEST_CASE("32 ranks that fail at once: a line each, and one sentence") {
  AtTerminal job(shell("32", "printf '\\rworking'; echo \"rank $RANK gives up\" >&2; exit 3"));
  const auto screen = job.screen_at_end();
  CHECK(job.wait() == 3);
  for (int rank = 0; rank < 32; ++rank) {
    const auto prefix = "[" + std::to_string(rank) + "] ";
    CAPTURE(rank);
    CHECK(std::count(screen.begin(), screen.end(), prefix + "working") == 1);
  }
  // Before the first end is known each has a line of its own, from then on all have one together.
  int reports = 0;
  for (const auto& line : screen) {
    const auto count = line.find("] ");
    if (line.ends_with(" ranks report: rank N gives up")) reports += std::stoi(line.substr(count + 2));
    if (line.ends_with(" gives up") && line.find(" report: ") == line.npos) ++reports;
  }
  CHECK(reports == 32);
}

TEST_CASE("32 ranks that write fast, lines in pieces and bars between them: nothing is lost or mixed") {
  AtTerminal job(shell("32",
                       "i=0; while [ $i -lt 400 ]; do printf \"begin $RANK \"; echo \"end $i\"; "
                       "printf \"\\r$i%%\" >&2; i=$((i+1)); done; echo >&2"),
                 {.rows = 40, .columns = 80});
  std::map<std::string, int> seen;
  for (const auto& line : job.screen_at_end()) ++seen[line];
  CHECK(job.wait() == 0);
  int missing = 0;
  for (int rank = 0; rank < 32; ++rank) {
    const auto number = std::to_string(rank);
    for (int i = 0; i < 400; ++i)
      missing += seen["[" + number + "] begin " + number + " end " + std::to_string(i)] == 1 ? 0 : 1;
    missing += seen["[" + number + "] 399%"] == 1 ? 0 : 1;
  }
  CHECK(missing == 0);
  CHECK(seen.size() == 32 * 401);
}

TEST_CASE("a rank's terminal has our size, less the prefix, and follows it") {
  AtTerminal job(shell("1", "trap 'stty size <&1; exit' WINCH; stty size <&1; while :; do sleep 0.02; done"));
  job.read_until("24 76\r\n");
  job.resize(50, 120);
  job.read_until("50 116\r\n");
  CHECK(job.wait() == 0);
}

TEST_CASE("bytes pass as they are: newlines once, nothing echoed, colours closed in their line") {
  AtTerminal job(shell("1", "echo plain; printf '\\033[31mred\\nred too\\033[0m\\n'; stty sane <&1; echo sane"));
  const auto bytes = job.read_until("");
  const std::string prefix = "\033[36m[0]\033[0m ";
  CHECK(bytes == prefix + "plain\r\n" + prefix + "\033[31mred\033[0m\r\n" + prefix +
                     "\033[31mred too\033[0m\033[0m\r\n" + prefix + "sane\r\n");
}

TEST_CASE("only a stream that is shown at a terminal is one for the ranks") {
  const std::string kinds = "for n in 1 2; do if test -t $n; then echo $n terminal; else echo $n pipe; fi; done";
  const auto quoted = [&](const std::string& flags, const std::string& end) {
    return Lines{"sh", "-c", tool("rondorun") + " " + flags + " sh -c '" + kinds + "'" + end};
  };
  CHECK(AtTerminal(quoted("", "")).screen_at_end() == Lines{"[0] 1 terminal", "[0] 2 terminal"});
  CHECK(AtTerminal(quoted("", " 2>/dev/null")).screen_at_end() == Lines{"[0] 1 terminal", "[0] 2 pipe"});
  CHECK(AtTerminal(quoted("", " | cat")).screen_at_end() == Lines{"[0] 1 pipe", "[0] 2 terminal"});
  CHECK(AtTerminal(quoted("--pty never", "")).screen_at_end() == Lines{"[0] 1 pipe", "[0] 2 pipe"});
  CHECK(AtTerminal(quoted("--prefix none", "")).screen_at_end() == Lines{"1 terminal", "2 terminal"});
  CHECK(run(quoted("--pty always", "")).out == "[0] 1 terminal\n[0] 2 terminal\n");
  CHECK(run(quoted("--pty sometimes", "")).err == "rondorun: --pty must be auto, always or never, not 'sometimes'\n");
}

TEST_CASE("a terminal that cannot be drawn on gets lines: a prompt, and bars once a second") {
  const Gate gate("dumb");
  AtTerminal job(shell("2", "[ $RANK = 0 ] || exit 0; for i in 1 2 3 4; do printf \"\\r$i%%\"; done; " + gate.wait() +
                                "printf '\\r5%%'; echo"),
                 {.environment = {"TERM=dumb", "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES="}});
  const auto is_last = [](const std::string& line) {
    return [=](const Lines& screen) { return !screen.empty() && screen.back() == line; };
  };
  CHECK(is_last("[0] 4%")(job.screen_when(is_last("[0] 4%"))));
  gate.open();
  const auto bytes = job.read_until("");
  CHECK(is_last("[0] 5%")(screen_after(bytes, 24, 80)));
  CHECK(bytes.find("\033[J") == bytes.npos);
  CHECK(bytes.find("\033[?7l") == bytes.npos);
}

TEST_CASE("Python programs write as they go, however they are started, unless they are told otherwise") {
  const std::string script = "echo \"<$PYTHONUNBUFFERED>\"";
  CHECK(run(shell("1", script)).out == "[0] <1>\n");
  CHECK(run(shell("1", script), {.environment = {"PYTHONUNBUFFERED="}}).out == "[0] <>\n");
}
