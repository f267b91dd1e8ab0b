// SPDX-License-Identifier: Apache-2.0
// Jobs of real processes on simulated devices: the kernels run on the host, memory goes between processes as through
// IPC, and every value is checked.
#include "tests/process/device_bench.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

void run_job(const Words& program, const Words& environment = {}, const std::string& ranks = "4") {
  CAPTURE(program, environment);
  check_right_and_labelled(run(rondorun({"--nproc-per-node", ranks}) + program, {.environment = environment}));
}

}  // namespace

TEST_CASE("every bench program on simulated devices: four processes, no wrong value") {
  for (const auto& program : kPrograms) run_job(bench(program));
}

TEST_CASE("every protocol and the windows, asked for by name") {
  for (const char* protocol : {"simple", "ll", "ll128", "window", "push"})
    run_job(bench("all_reduce_perf", {"--protocol", protocol, "-R", "1"}), {}, "3");
}

TEST_CASE("graphs are replayed a hundred times, and the results after them are right") {
  for (const auto& program : kPrograms) run_job(bench(program, {"-G", "100"}, "512"), {}, "2");
}

TEST_CASE("two devices of one host without access to each other") {
  for (const auto& program : kPrograms) run_job(bench(program), {"RONDO_SIM_DEVICES=2", "RONDO_SIM_PEER_ACCESS=0"});
}

TEST_CASE("processes that take turns on a device are told so once, and what to do") {
  const struct {
    const char* mps;
    int times;
    const char* which;
  } rows[] = {{"RONDO_SIM_MPS=0", 1, "without MPS, so they take turns on it"},
              {"RONDO_SIM_MPS=-1", 1, "without MPS as far as anybody can tell, so they take turns on it"},
              {"RONDO_SIM_MPS=1", 0, ""}};
  for (const auto& row : rows) {
    CAPTURE(row.mps);
    const Ended ended = run(rondorun({"--nproc-per-node", "3"}) + bench("all_reduce_perf", {}, "512"),
                            {.environment = {"RONDO_SIM_DEVICES=1", row.mps}});
    check_right_and_labelled(ended);
    const std::string said = ended.out + ended.err;
    int times = 0;
    for (auto at = said.find("take turns on it"); at != std::string::npos; at = said.find("take turns on it", at + 1))
      ++times;
    CHECK(times == row.times);
    if (row.times == 0) continue;
    CHECK(said.find("ranks 0, 1, 2 are processes on one GPU") != std::string::npos);
    CHECK(said.find(row.which) != std::string::npos);
    CHECK(said.find("use rondorun --mps, or ranks that are threads") != std::string::npos);
  }
}

TEST_CASE("kill -9 of a rank on a simulated device: the others name it within seconds") {
  Running job(rondorun({"--nproc-per-node", "4", tool("device_looper"), "loop"}));
  Words pids(4);
  for (const auto& line : job.lines("joined ", 4)) pids[std::stoul(line)] = line.substr(line.find(' ') + 1);
  const Watched ranks(pids);
  const auto killed = std::chrono::steady_clock::now().time_since_epoch();
  ::kill(std::stoi(pids[2]), SIGKILL);
  const auto reports = job.lines("error at ", 3);
  const auto ended = job.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 128 + SIGKILL);
  REQUIRE(reports.size() == 3);
  for (const auto& report : reports) {
    CHECK(report.find("rank 2") != std::string::npos);
    CHECK(std::chrono::microseconds(std::stoll(report)) - killed < 5s);
  }
  CHECK(ranks.all_gone_within(0s));
}

TEST_CASE("ranks on simulated devices that call different things all hear who and what differed") {
  const std::vector<Words> differences{{"count", "on the count of all_reduce"},
                                       {"dtype", "on the dtype of all_reduce"},
                                       {"op", "on the reduce_op of all_reduce"},
                                       {"collective", "rank 1 called broadcast"}};
  for (const auto& difference : differences) {
    const auto ended = run(rondorun({"--nproc-per-node", "3", tool("device_looper"), difference[0], "1"}));
    INFO(ended.out << ended.err);
    CHECK(ended.code == 1);
    std::size_t reports = 0;
    std::istringstream lines(ended.out);
    for (std::string line; std::getline(lines, line);) {
      if (line.find("error at ") == std::string::npos) continue;
      ++reports;
      CHECK(line.find("rank 1 ") != std::string::npos);
      CHECK(line.find(difference[1]) != std::string::npos);
    }
    CHECK(reports == 3);
    CHECK(ended.seconds < 10);
  }
}

TEST_CASE("a GPU that is not there ends the job with one sentence per rank") {
  const auto ended = run(rondorun({"--nproc-per-node", "2", tool("all_reduce_perf"), "--device", "cuda"}),
                         {.environment = {"CUDA_VISIBLE_DEVICES="}});
  INFO(ended.out << ended.err);
  CHECK(ended.code == 1);
  CHECK(ended.out.empty());
  std::size_t sentences = 0;
  std::istringstream lines(ended.err);
  for (std::string line; std::getline(lines, line);) sentences += line.find("all_reduce_perf: ") != std::string::npos;
  CHECK(sentences == 2);
}
