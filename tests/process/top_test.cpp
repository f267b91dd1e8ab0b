// SPDX-License-Identifier: Apache-2.0
// Looking at a job that runs: rondo top, and rondorun --watch.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/process/at_terminal.hpp"
#include "tests/process/nodes_job.hpp"
#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tools/rondo/snapshot.hpp"
#include "tools/rondo/visit.hpp"

namespace {

using namespace rondo::test;
using nlohmann::json;
namespace records = rondo::records;

std::vector<std::string> job(const std::string& scenario, std::vector<std::string> flags = {}) {
  flags.insert(flags.end(), {"-n", "4", "--", tool("recorded"), scenario});
  return rondorun(flags);
}

json top(pid_t pid) {
  const auto ended = run({tool("rondo"), "top", "--json", std::to_string(pid)});
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(std::count(ended.out.begin(), ended.out.end(), '\n') == 1);
  return json::parse(ended.out);
}

// Asked until it is so, or for 20 s.
json top_when(pid_t pid, const std::function<bool(const json&)>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  json last;
  do last = top(pid);
  while (!is_so(last) && std::chrono::steady_clock::now() < deadline);
  return last;
}

bool some_row(const std::vector<std::string>& rows, const std::string& part) {
  return std::any_of(rows.begin(), rows.end(), [&](const std::string& row) { return contains(row, part); });
}

}  // namespace

TEST_CASE(
    "rondo top --json says of each rank what it is in: ranks that wait, one that computes, is stopped, has ended") {
  Running running(job("computes"));
  running.lines("rank ", 4);
  json now = top_when(running.pid(), [](const json& all) { return all["ranks"][3]["state"] == "in call"; });
  CAPTURE(now.dump(1));
  CHECK(now["world_size"] == 4);
  CHECK(now["command"] == json({tool("recorded"), "computes"}));
  REQUIRE(now["ranks"].size() == 4);
  const json& waits = now["ranks"][3];
  CHECK(waits["rank"] == 3);
  CHECK(waits["call"]["collective"] == "all_reduce");
  CHECK(waits["call"]["sequence"] == 4);
  CHECK(waits["call"]["over"] == false);
  CHECK(waits["communicator"] == "world");
  CHECK(waits["generation"] == 0);
  CHECK(waits["bytes_per_s"] > 0);
  CHECK(waits["host"] == now["host"]);
  const json computes = now["ranks"][2];
  CHECK(computes["state"] == "computing");
  CHECK(computes["call"]["sequence"] == 3);
  CHECK(computes["call"]["over"] == true);
  CHECK(computes["since_us"].is_number_integer());
  CHECK(computes["since_us"] <= waits["since_us"].get<double>() + 1e6);

  const pid_t rank = computes["pid"];
  CHECK(top(rank)["ranks"][2]["pid"] == rank);  // a rank's id says which job, too
  REQUIRE(::kill(rank, SIGSTOP) == 0);
  now = top_when(running.pid(), [](const json& all) {
    return all["ranks"][2]["state"] == "stopped" && all["ranks"][1]["state"] == "in call";
  });
  CHECK(now["ranks"][2]["state"] == "stopped");
  CHECK(now["ranks"][1]["state"] == "in call");
  running.signal(SIGTERM);
  ::kill(rank, SIGCONT);
  CHECK(running.wait().code == 128 + SIGTERM);
}

TEST_CASE("rondo top shows ranks that never make a communicator as silent, and one that has ended as that") {
  Running running(rondorun({"-n", "2", "--", "sh", "-c", "[ $RANK = 0 ] && exit 0; echo ready; exec sleep 60"}));
  running.lines("ready", 1);
  const json now = top_when(running.pid(), [](const json& all) { return all["ranks"][0]["state"] == "ended"; });
  CHECK(now["ranks"][0]["how_it_ended"] == "exited with code 0");
  CHECK(now["ranks"][1]["state"] == "silent");
  CHECK(now["ranks"][1]["bytes_per_s"].is_null());
  CHECK(now["ranks"][1]["call"].is_null());
}

TEST_CASE("rondo top prints its table once where there is no terminal, and goes on at one until the job ends") {
  Running running(job("loops"));
  running.lines("rank ", 4);
  const std::string pid = std::to_string(running.pid());
  const auto once = run({tool("rondo"), "top", pid});
  CHECK(once.code == 0);
  CHECK(std::count(once.out.begin(), once.out.end(), '\n') == 6);
  CHECK(contains(once.out, " rank      pid state "));
  CHECK(contains(once.out, "all_reduce of 1000 f32, sum, #"));
  AtTerminal seen({tool("rondo"), "top", pid}, {.rows = 12, .columns = 100});
  seen.read_until("gen", 3);  // drawn anew, and anew
  const auto screen = seen.screen_when([](const auto& rows) { return some_row(rows, "#"); });
  CHECK(std::count_if(screen.begin(), screen.end(), [](const auto& row) { return contains(row, "gen"); }) == 1);
  running.signal(SIGTERM);
  CHECK(contains(seen.read_until(""), "the job has ended"));
  CHECK(seen.wait() == 0);
}

TEST_CASE("rondo top says in a sentence that there is no such job") {
  const auto ended = run({tool("rondo"), "top", "1"});
  CHECK(ended.code == 2);
  CHECK(ended.out == "");
  CHECK((ended.err == "rondo: no job of this user runs on this host under rondorun\n" ||
         ended.err.starts_with("rondo: process 1 is of no job of this user; launchers that run: ")));
  CHECK(run({tool("rondo"), "top", "-3"}).code == 2);
  CHECK(run({tool("rondo"), "top", "nobody"}).code == 2);
}

namespace {

// All ranks are in calls of that generation, and the folder that a signal asks for says the same of them.
void check_start(Running& running, const TemporaryFolder& folder, int start, int generation) {
  const auto times = static_cast<std::size_t>(start) + 1;
  running.lines("rank ", 2 * times);
  const json now = top_when(running.pid(), [&](const json& all) {
    return std::all_of(all["ranks"].begin(), all["ranks"].end(),
                       [&](const json& rank) { return rank["generation"] == generation; });
  });
  CAPTURE(now.dump(1));
  CHECK(now["restarts"] == start);
  const auto pids = running.lines(fmt::format("start {} pid ", start), now["ranks"].size());
  running.signal(SIGUSR2);
  const auto said = running.lines("rondorun: what each rank does now: rondo explain ", times);
  const auto read = [&](const std::string& name) {
    std::ifstream in(folder.path / std::filesystem::path(said.back()).filename() / name);
    return json::parse(in);
  };
  const json left = read("job.json");
  CHECK(left["restarts"] == start);
  REQUIRE(left["ranks"].size() == now["ranks"].size());
  for (std::size_t i = 0; i < now["ranks"].size(); ++i) {
    const json &shown = now["ranks"][i], &written = left["ranks"][i];
    CHECK(std::find(pids.begin(), pids.end(), std::to_string(shown["pid"].get<int>())) != pids.end());
    CHECK(shown["generation"] == generation);
    CHECK(shown["state"] != "ended");
    CHECK(written["pid"] == shown["pid"]);
    CHECK_FALSE(written.contains("exit_code"));
    const json record = read(fmt::format("rank{}.json", shown["rank"].get<int>()));
    CHECK(record["pid"] == shown["pid"]);
    CHECK(record["communicators"][0]["generation"] == generation);
  }
}

}  // namespace

TEST_CASE("after all ranks have started again, rondo top and SIGUSR2 show those that run now, on one node and on two") {
  const std::size_t nodes = GENERATE(1U, 2U);
  const TemporaryFolder folder;
  const NodesJob several("2");
  const std::vector<std::string> flags{"-n", "2", "--max-restarts", "1"};
  const Running::How how{.environment = {"RONDO_FAILURE_DIR=" + folder.path.string()}, .one_stream = true};
  std::deque<Running> launchers;
  for (std::size_t node = 0; node < nodes; ++node) {
    auto words = nodes == 1 ? rondorun(flags) : several.words(flags);
    if (nodes > 1) words.insert(words.end(), {"--node-rank", std::to_string(node)});
    words.insert(words.end(), {"--", "sh", "-c", "echo start $TORCHELASTIC_RESTART_COUNT pid $$; exec \"$@\"", "sh",
                               tool("recorded"), "loops"});
    launchers.emplace_back(words, how);
  }
  for (Running& one : launchers) check_start(one, folder, 0, 0);
  ::kill(std::stoi(launchers.back().lines("start 0 pid ", 2).back()), SIGKILL);
  for (Running& one : launchers) one.lines("start 1 pid ", 2);
  for (Running& one : launchers) check_start(one, folder, 1, nodes == 1 ? 1 : 1000);
  launchers.front().signal(SIGTERM);
  for (Running& one : launchers) CHECK(one.wait().code == 128 + SIGTERM);
}

TEST_CASE("a launcher answers no other user, and speaks no other language") {
  Running running(rondorun({"--", "sh", "-c", "echo ready; exec sleep 60"}));
  running.lines("ready", 1);
  const auto found = records::find_job(running.pid());
  const auto answer_to = [&](uid_t user, const std::string& words) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (user != ::geteuid() && ::setuid(user) != 0) ::_exit(3);
      const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      found.socket.copy(address.sun_path + 1, sizeof address.sun_path - 1);
      const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + found.socket.size());
      if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0) ::_exit(4);
      ::send(socket, words.data(), words.size(), MSG_NOSIGNAL);
      char byte = 0;
      ::_exit(::recv(socket, &byte, 1, 0) > 0 ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  CHECK(answer_to(::geteuid(), std::string(1, records::kAskForSnapshot)) == 1);
  CHECK(answer_to(::geteuid(), "GET / HTTP/1.1") == 0);
  if (::geteuid() == 0)
    CHECK(answer_to(65534, std::string(1, records::kAskForSnapshot)) == 0);
  else
    WARN("skipped: this user cannot become another one");
}

TEST_CASE("many who look at once, and leave without an answer, cost the job nothing") {
  Running running(job("loops"));
  running.lines("rank ", 4);
  const auto found = records::find_job(running.pid());
  {
    std::vector<records::Visit> visits;
    for (int i = 0; i < 8; ++i) visits.emplace_back(found);
    for (auto& visit : visits) CHECK(visit.look().has_value());
    records::Visit waits(found);
    visits.pop_back();
    CHECK(waits.look().has_value());
  }
  const json now = top_when(running.pid(), [](const json& all) { return all["ranks"][0]["bytes_per_s"] > 0; });
  CHECK(now["ranks"].size() == 4);
  running.signal(SIGTERM);
  CHECK(running.wait().code == 128 + SIGTERM);
}

TEST_CASE("--watch says in lines what ranks are in together, where stderr is no terminal") {
  Running running(job("computes", {"--watch"}), {.one_stream = true});
  running.lines("rondorun: watch: ranks 0,1,3 in all_reduce of 1000 f32, sum, #4 of world, for ", 1);
  running.lines("rondorun: watch: rank 2 computing since all_reduce of 1000 f32, sum, #3 of world, for ", 1);
  running.signal(SIGTERM);
  CHECK(running.wait().code == 128 + SIGTERM);
}

TEST_CASE("--watch draws a table below the ranks' output at a terminal, which is gone when the job has ended") {
  AtTerminal seen(rondorun({"--watch", "-n", "2", "--color", "never", "--", "sh", "-c",
                            "echo begun; read line; [ $RANK = 0 ] && echo line $line; read line; echo done"}),
                  {.environment = {"TERM=xterm", "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES="}, .columns = 100});
  const auto screen = seen.screen_when([](const auto& rows) {
    return some_row(rows, "silent") && some_row(rows, "[0] begun") && some_row(rows, "[1] begun");
  });
  const auto table = std::find_if(screen.begin(), screen.end(), [](const auto& row) { return contains(row, "gen"); });
  REQUIRE(table != screen.end());
  CHECK(table - screen.begin() >= 2);  // below what the ranks have written
  CHECK(some_row(screen, "[0] begun"));
  seen.type("one\r");
  const auto below = [](const auto& rows) { return some_row(rows, "[0] line one") && some_row(rows, "silent"); };
  CHECK(below(seen.screen_when(below)));  // it is drawn anew below each line
  seen.type("two\r");
  const auto last = seen.screen_at_end();
  CHECK(some_row(last, "[0] done"));
  CHECK_FALSE(some_row(last, "silent"));
  CHECK_FALSE(some_row(last, "gen"));
  CHECK(seen.wait() == 0);
}

TEST_CASE("a snapshot is read in pieces of any size, and nothing else is one") {
  const records::Snapshot whole{.job = "{\"a\"\n}", .records = {{0, ""}, {12, "end 0\n"}}};
  const std::string text = records::encode(whole) + records::encode({.job = "2", .records = {}});
  records::SnapshotReader reader;
  std::vector<records::Snapshot> all;
  for (const char byte : text) {
    reader.take({&byte, 1});
    if (auto snapshot = reader.next()) all.push_back(*snapshot);
  }
  REQUIRE(all.size() == 2);
  CHECK(all[0].job == whole.job);
  CHECK(all[0].records == whole.records);
  CHECK(all[1].job == "2");
  CHECK(all[1].records.empty());
  for (const std::string& bytes :
       {std::string("HTTP/1.1 400 Bad Request\n"), std::string("job -1\n"), std::string("\n"),
        std::string("job 99999999999999999999\n"), std::string(100, 'x')}) {
    CAPTURE(bytes);
    records::SnapshotReader other;
    other.take(bytes);
    CHECK_THROWS_AS(other.next(), std::runtime_error);
  }
}
