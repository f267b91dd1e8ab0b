// SPDX-License-Identifier: Apache-2.0
// What the ranks write arrives in whole lines, whatever it is.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

std::vector<std::string> shell(const std::string& ranks, const std::string& script) {
  return rondorun({"--nproc-per-node", ranks, "--", "sh", "-c", script});
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

}  // namespace

TEST_CASE("interleaved writers: every line is whole, in its rank's order, and none is lost") {
  const bool one_stream = GENERATE(false, true);
  // Each line is written in two pieces, so that others get in between.
  const auto ended = run(shell("4",
                               "i=0; while [ $i -lt 2000 ]; do printf \"$RANK begin \"; echo \"end $i\"; "
                               "echo \"$RANK begin end $i\" >&2; i=$((i+1)); done"),
                         {.one_stream = one_stream});
  CHECK(ended.code == 0);
  const auto lines = split(ended.out + ended.err);
  REQUIRE(lines.size() == 4 * 2 * 2000);
  std::map<std::string, int> seen;
  int wrong = 0;
  for (const auto& line : lines) {
    const std::string rank = line.substr(1, line.find(']') - 1);
    const std::string prefix = "[" + rank + "] " + rank + " begin end ";
    if (!line.starts_with(prefix)) ++wrong;
    ++seen[line];
  }
  CHECK(wrong == 0);
  CHECK(seen.size() == 4 * 2000);
}

TEST_CASE("long lines of both streams into one pipe stay whole") {
  const auto ended = run(shell("4",
                               "line=$(head -c 30000 /dev/zero | tr '\\0' x); i=0; while [ $i -lt 50 ]; do echo $line; "
                               "echo $line >&2; i=$((i+1)); done"),
                         {.one_stream = true});
  const auto lines = split(ended.out);
  CHECK(lines.size() == 4 * 2 * 50);
  CHECK(std::all_of(lines.begin(), lines.end(), [](const auto& line) { return line.size() == 4 + 30000; }));
}

TEST_CASE("a last line without a newline is a whole line") {
  const auto ended = run(shell("2", "printf out; printf err >&2; test $RANK = 0 || kill -9 $$"));
  auto lines = split(ended.out);
  std::sort(lines.begin(), lines.end());
  CHECK(lines == std::vector<std::string>{"[0] out", "[1] out"});
  CHECK(ended.err.find("[1] err\n") != std::string::npos);
}

TEST_CASE("stdout and stderr stay apart, without colors where there is no terminal") {
  const auto ended = run(shell("1", "echo to out; echo to err >&2"));
  CHECK(ended.out == "[0] to out\n");
  CHECK(ended.err == "[0] to err\n");
}

TEST_CASE("long lines and binary output") {
  const auto length = run(shell("2", "head -c 3000000 /dev/zero | tr '\\0' x; echo"));
  CHECK(length.code == 0);
  const auto lines = split(length.out);
  REQUIRE(lines.size() == 2);
  for (const auto& line : lines) CHECK(line.size() == 4 + 3000000);
  const auto endless = run(shell("1", "head -c 20000000 /dev/zero"));
  CHECK(endless.code == 0);
  CHECK(static_cast<std::size_t>(std::count(endless.out.begin(), endless.out.end(), '\0')) == 20000000);
  const auto binary = run(shell("1", "printf 'a\\000b\\377\\n\\n'"));
  CHECK(binary.out == std::string("[0] a\0b\xff\n[0] \n", 14));
}

TEST_CASE("a reader that stops reading ends the ranks, as it would without the launcher") {
  Running job(rondorun({"--nproc-per-node", "2", "yes"}));
  job.lines("y", 10);
  job.close_output();
  const auto ended = job.wait();
  CHECK(ended.code == 128 + SIGPIPE);
  CHECK(ended.err.find("signal 13") != std::string::npos);
}

TEST_CASE("a reader that does not read makes the ranks wait, and holds up nothing else") {
  Running job(shell("2", "echo pid $$; exec yes"));
  const Watched ranks(job.lines("pid ", 2));  // from here on nobody reads
  SECTION("the job ends when it is told to") {
    job.signal(SIGTERM);
    CHECK(ranks.all_gone_within(std::chrono::seconds(1)));
    CHECK(job.wait().code == 128 + SIGTERM);
  }
  SECTION("and when the launcher is killed") {
    job.signal(SIGKILL);
    CHECK(ranks.all_gone_within(std::chrono::seconds(1)));
  }
}

TEST_CASE("nothing is lost when there is more output than the reader takes at once") {
  const auto ended = run(shell("2", "seq 1 300000"));
  CHECK(ended.code == 0);
  CHECK(split(ended.out).size() == 600000);
  CHECK(ended.out.find("[1] 300000\n") != std::string::npos);
}

TEST_CASE("--prefix none: the ranks write for themselves") {
  const auto ended = run(rondorun({"--nproc-per-node", "2", "--prefix", "none", "echo", "plain"}));
  CHECK(ended.out == "plain\nplain\n");
}

TEST_CASE("--log-dir keeps each rank's output, and --redirects keeps it there alone") {
  const auto folder = std::filesystem::temp_directory_path() / ("rondo-test-logs-" + std::to_string(::getpid()));
  const auto script = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(),
                 {"--log-dir", folder, "--nproc-per-node", "2", "sh", "-c", "echo o$RANK; echo e$RANK >&2"});
    return run(rondorun(flags));
  };
  const auto file = [&](const std::string& name) {
    std::ifstream stream(folder / name);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const auto both = script({});
  CHECK(both.err.find("[1] e1\n") != std::string::npos);
  CHECK(file("1/stdout.log") == "o1\n");
  CHECK(file("0/stderr.log") == "e0\n");
  script({});  // another run leaves the first one's
  CHECK(file("1/stdout.log") == "o1\no1\n");
  std::filesystem::remove_all(folder);
  const auto redirected = script({"-r", "1", "-t", "2"});
  CHECK(redirected.out.empty());
  CHECK(redirected.err.find("[1] e1\n") != std::string::npos);
  CHECK(file("1/stdout.log") == "o1\n");
  CHECK(file("1/stderr.log") == "e1\n");
  std::filesystem::remove_all(folder);
}

TEST_CASE("a full disk is an error with its name, and no reason for ranks to end") {
  const std::string script = "seq 1 100000; echo finished >&2";
  SECTION("of the launcher's output") {
    const auto ended = run(
        {"sh", "-c", "exec \"$@\" >/dev/full", "sh", tool("rondorun"), "--nproc-per-node", "2", "sh", "-c", script});
    INFO(ended.err);
    CHECK(ended.code == 1);
    CHECK(ended.err.find("rondorun: cannot write stdout: No space left on device") != std::string::npos);
    CHECK(ended.err.find("[0] finished\n") != std::string::npos);
    CHECK(ended.err.find("[1] finished\n") != std::string::npos);
  }
  SECTION("of one rank's log, while the other's is whole") {
    const auto folder = std::filesystem::temp_directory_path() / ("rondo-test-full-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder / "0");
    std::filesystem::create_symlink("/dev/full", folder / "0" / "stdout.log");
    const auto ended = run(rondorun({"--log-dir", folder, "-r", "1", "--nproc-per-node", "2", "sh", "-c", script}));
    INFO(ended.err);
    CHECK(ended.code == 1);
    CHECK(ended.err.find("rondorun: cannot write the log " + (folder / "0" / "stdout.log").string() +
                         ": No space left on device") != std::string::npos);
    CHECK(ended.err.find("[0] finished\n") != std::string::npos);
    std::ifstream other(folder / "1" / "stdout.log");
    const std::string text(std::istreambuf_iterator<char>(other), {});
    CHECK(text.ends_with("\n100000\n"));
    std::filesystem::remove_all(folder);
  }
  SECTION("a rank's own failure keeps its exit code") {
    const auto ended =
        run({"sh", "-c", "exec \"$@\" >/dev/full", "sh", tool("rondorun"), "sh", "-c", "echo a; exit 7"});
    CHECK(ended.code == 7);
  }
}
