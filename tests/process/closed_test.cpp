// SPDX-License-Identifier: Apache-2.0
// Descriptors that are not there: the standard streams of every program (`program >&-`), and the one in which a rank
// finds its job's secret.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "rendezvous/secret.hpp"
#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

// Which streams a shell closes before the program.
const std::vector<std::string> kClosed{"<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"};

std::vector<std::string> without(const std::string& closed, std::vector<std::string> command) {
  command.insert(command.begin(), {"sh", "-c", fmt::format("exec \"$@\" {}", closed), "sh"});
  return command;
}

struct Program {
  std::vector<std::string> command;
  int code;
  std::vector<std::string> environment{};
};

std::string in_temporary(const std::string& name) {
  return std::filesystem::temp_directory_path() / fmt::format("rondo-closed-{}-{}", name, ::getpid());
}

}  // namespace

TEST_CASE("every program ends as it would when its standard streams are closed at the start") {
  const std::vector<std::string> few{"-b", "8", "-e", "8", "-n", "1", "-w", "0"};
  const auto with = [](std::vector<std::string> command, const std::vector<std::string>& more) {
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const std::vector<Program> programs{
      {rondorun({"--nproc-per-node", "2", "true"}), 0},
      {rondorun({"--nproc-per-node", "2", "sh", "-c", "exit 7"}), 7},
      {rondorun({"--nproc-per-node", "2", "--prefix", "none", "sh", "-c", "echo out; echo err >&2; cat"}), 0},
      {rondorun({"--nproc-per-node", "2", "sh", "-c", "echo out; echo err >&2; cat"}), 0},
      {rondorun({"--help"}), 0},
      {rondorun({}), 2},
      {rondorun(with({"--nproc-per-node", "2", tool("all_reduce_perf")}, few)), 0},
      {rondorun({"--nproc-per-node", "2", tool("all_reduce")}), 0},
      {{tool("rondo-plan"), "--list"}, 0},
      {{tool("rondo-plan"), "--no-such-flag"}, 2},
      {{"timeout", "--preserve-status", "-s", "TERM", "1", tool("rondo-rendezvous"), "--insecure", "--port", "0"}, 0},
      {{tool("rondo-rendezvous"), "--port", "0"}, 2},
      {{tool("rondo-tune"), "--ranks", "2"}, 1, {"RONDO_TUNING=none"}},
      {with({tool("all_reduce_perf"), "-g", "2"}, few), 0},
      {with({tool("all_reduce_perf"), "-g", "2", "--device", "sim"}, few), 0},
      {{tool("all_reduce_perf"), "-b", "none"}, 2},
      {{tool("all_reduce")}, 0},
      {{tool("linear_regression")}, 0},
      {{tool("deaf"), "cpu", "spawn", "2"}, 0, {"RONDO_LOG=debug"}},
      {{tool("deaf"), "cpu", "spawn", "3"}, 0, {"RONDO_LOG=debug", "RONDO_TRANSPORT=tcp"}},
  };
  for (const auto& [command, code, environment] : programs) {
    for (const auto& closed : kClosed) {
      CAPTURE(command, closed);
      const auto ended = run(without(closed, command), {.environment = environment});
      INFO(ended.out << ended.err);
      CHECK(ended.code == code);
    }
  }
}

TEST_CASE("the library lets nothing of its own become a standard stream of a program that has none") {
  const std::string closed = GENERATE(from_range(kClosed));
  const std::string transport = GENERATE("shm", "tcp");
  const std::string device = GENERATE("cpu", "sim");
  if (device == "sim" && transport == "tcp") return;  // devices choose their way themselves
  CAPTURE(closed, transport, device);
  const std::string url = "file://" + in_temporary("meeting");
  std::deque<Running> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.emplace_back(without(closed, {tool("deaf"), device, url, rank, "2"}),
                       Running::How{.environment = {"RONDO_LOG=debug", "RONDO_TRANSPORT=" + transport}});
  }
  for (auto& rank : ranks) {
    const auto ended = rank.wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
  }
}

TEST_CASE("a wrapper that closes the secret's descriptor is told of, with what to do, which helps") {
  const std::string closing = GENERATE(">&-", "</dev/null");
  const std::string wrapper = fmt::format("eval \"exec $RONDO_SECRET_FD{}\"; exec \"$@\"", closing);
  const auto job = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--nproc-per-node", "2", "bash", "-c", wrapper, "bash", tool("reducer"), "reduce"});
    return run(rondorun(flags));
  };
  const auto refused = job({});
  INFO(refused.out << refused.err);
  CHECK(refused.code == 1);
  CHECK(refused.out.find("RONDO_SECRET_FD=") != std::string::npos);
  CHECK(refused.out.find("has closed the descriptor") != std::string::npos);
  CHECK(refused.out.find("pass_fds=[") != std::string::npos);
  CHECK(refused.out.find("rondorun --secret-file") != std::string::npos);
  const std::string secret = in_temporary("secret");
  rondo::rendezvous::Secret::generate().to_file(secret);
  const auto helped = job({"--secret-file", secret});
  INFO(helped.out << helped.err);
  CHECK(helped.code == 0);
  std::filesystem::remove(secret);
}
