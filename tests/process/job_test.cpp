// SPDX-License-Identifier: Apache-2.0
// Whole jobs: rondorun, the rendezvous, communicators, and one rank that misbehaves.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <set>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

std::vector<std::string> reducer(int world_size, const std::string& mode, int bad_rank = -1) {
  return rondorun({"--nproc-per-node", std::to_string(world_size), tool("reducer"), mode, std::to_string(bad_rank)});
}

long long now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().string().find("rondo") != std::string::npos) result.insert(entry.path());
  return result;
}

// Of the ranks that reported an error: the times and the sentences.
std::vector<std::string> errors_in(const std::string& out) {
  std::vector<std::string> result;
  for (std::size_t begin = 0, end = 0; (end = out.find('\n', begin)) != out.npos; begin = end + 1) {
    const std::string line = out.substr(begin, end - begin);
    const auto at = line.find("error at ");
    if (at != line.npos) result.push_back(line.substr(at + 9));
  }
  return result;
}

}  // namespace

TEST_CASE("ranks reduce together, any number of them") {
  const int world_size = GENERATE(1, 2, 3, 4, 7, 8);
  const auto ended = run(reducer(world_size, "reduce"));
  INFO(ended.err);
  CHECK(ended.code == 0);
  for (int rank = 0; rank < world_size; ++rank) {
    std::string line = std::to_string(rank);
    line += "] sums are right\n";
    CHECK(ended.out.find(line) != std::string::npos);
  }
}

TEST_CASE("a rank with another setting than rank 0's says which, and that rank 0's holds") {
  const std::string variable = GENERATE("RONDO_SLICE_BYTES=4096", "RONDO_FIFO_SLOTS=4", "RONDO_SEGMENT_BYTES=1048576",
                                        "RONDO_LINK_PATIENCE_MS=9000");
  CAPTURE(variable);
  const std::string of_one = "test $RANK = 0 || export " + variable + "; exec " + tool("reducer") + " reduce";
  const auto ended = run(rondorun({"--nproc-per-node", "2", "--", "sh", "-c", of_one}));
  CHECK(ended.code == 0);
  const std::string name = variable.substr(0, variable.find('='));
  CHECK(ended.err.find("rank 1: rank 0 was told otherwise, and what it was told holds: " + name + "\n") !=
        std::string::npos);
}

TEST_CASE("kill -9 of a rank in the middle of all_reduce: the others name it at once, and nothing is left") {
  const int bad_rank = GENERATE(0, 1, 3);
  const auto before = shared_memory_files();
  Running job(
      rondorun({"--nproc-per-node", "4", "--", "sh", "-c", "echo pid $RANK $$; exec " + tool("reducer") + " loop"}));
  const auto announced = job.lines("pid ", 4);
  const auto pids = job.lines("joined ", 4);
  const Watched ranks(pids);
  const std::string bad = std::to_string(bad_rank) + " ";
  const auto found =
      std::find_if(announced.begin(), announced.end(), [&](const auto& line) { return line.starts_with(bad); });
  REQUIRE(found != announced.end());
  const std::string pid = found->substr(bad.size());
  const auto killed_us = now_us();
  ::kill(std::stoi(pid), SIGKILL);
  const auto ended = job.wait();
  CHECK(ended.code == 128 + SIGKILL);
  CHECK(ended.err.starts_with("rondorun: rank " + bad + "(pid " + pid + ") was killed by signal 9 (Killed)"));
  const auto errors = errors_in(ended.out);
  CHECK(errors.size() == 3);
  for (const auto& error : errors) {
    INFO(error);
    CHECK(error.find("rank " + std::to_string(bad_rank)) != std::string::npos);
    CHECK(std::stoll(error) - killed_us < 100'000);
  }
  CHECK(ranks.all_gone_within(0s));
  CHECK(shared_memory_files() == before);
}

TEST_CASE("a rank that ends well in the middle of the job fails the others by name") {
  const auto ended = run(reducer(3, "leave", 1));
  CHECK(ended.code == 1);
  const auto errors = errors_in(ended.out);
  CHECK(errors.size() == 2);
  for (const auto& error : errors) CHECK(error.find("rank 1") != std::string::npos);
  INFO(ended.err);
  CHECK(ended.err.find("rondorun: rank 1 (pid ") != std::string::npos);
  CHECK(ended.err.find(") ended with exit code 0 while other ranks needed it: rank ") != std::string::npos);
}

TEST_CASE("an exception that nobody catches: its rank is named, not one of those that lost it") {
  for (int round = 0; round < 5; ++round) {
    const auto ended = run(reducer(4, "throw", 1));
    CHECK(ended.code == 128 + SIGABRT);
    CHECK(ended.err.find("rondorun: rank 1 (pid ") != std::string::npos);
    CHECK(errors_in(ended.out).size() == 3);
  }
}

TEST_CASE("a rank that ends without joining is missed by name") {
  const auto ended = run(reducer(3, "absent", 2));
  CHECK(ended.code == 1);
  const auto errors = errors_in(ended.out);
  CHECK(errors.size() == 2);
  INFO(ended.err);
  CHECK(ended.err.find("exited with code 1; before it rank 2 had ended with exit code 0\n") != std::string::npos);
  for (const auto& error : errors) {
    INFO(error);
    CHECK(error.find("2") != std::string::npos);
  }
  CHECK(ended.seconds < 10);
}

TEST_CASE("a wrong world size on one rank is an error with both values") {
  const auto ended = run(reducer(3, "world", 1));
  CHECK(ended.code == 1);
  INFO(ended.out);
  CHECK(ended.out.find("9") != std::string::npos);
  CHECK(ended.seconds < 25);
}

TEST_CASE("mismatched collectives: every rank gets the error, with the field") {
  const std::string field = GENERATE("count", "dtype", "op", "collective");
  const auto ended = run(reducer(3, field, 1));
  CHECK(ended.code == 1);
  const auto errors = errors_in(ended.out);
  INFO(ended.out);
  CHECK(errors.size() == 3);
  for (const auto& error : errors) CHECK(error.find("rank 1") != std::string::npos);
  CHECK(ended.seconds < 10);
}

TEST_CASE("processes that a scheduler started find each other by its variables alone") {
  struct Scheduler {
    const char *rank, *size, *local_rank, *local_size, *job;
    std::vector<std::string> more;
  };
  const auto scheduler =
      GENERATE(Scheduler{"SLURM_PROCID=",
                         "SLURM_STEP_NUM_TASKS=",
                         "SLURM_LOCALID=",
                         "SLURM_NTASKS=",
                         "SLURM_JOB_ID=",
                         {"SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=1"}},
               Scheduler{"OMPI_COMM_WORLD_RANK=",
                         "OMPI_COMM_WORLD_SIZE=",
                         "OMPI_COMM_WORLD_LOCAL_RANK=",
                         "OMPI_COMM_WORLD_LOCAL_SIZE=",
                         "PMIX_NAMESPACE=",
                         {}},
               Scheduler{"PMI_RANK=", "PMI_SIZE=", "MPI_LOCALRANKID=", "MPI_LOCALNRANKS=", "PMI_JOBID=", {}});
  const std::string job = std::to_string(::getpid());
  std::deque<Running> ranks;
  for (const std::string rank : {"0", "1", "2"}) {
    auto variables = scheduler.more;
    variables.insert(variables.end(),
                     {scheduler.rank + rank, scheduler.size + std::string("3"), scheduler.local_rank + rank,
                      scheduler.local_size + std::string("3"), scheduler.job + job});
    ranks.emplace_back(std::vector{tool("reducer"), std::string("reduce")}, Running::How{.environment = variables});
  }
  for (auto& rank : ranks) {
    const auto ended = rank.wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find("sums are right\n") != std::string::npos);
  }
}

TEST_CASE("a program that a rank starts does not hold the job's secret, and the rank may join again") {
  const auto ended = run(rondorun({"--nproc-per-node", "2", tool("reducer"), "start"}));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out.find("holds pipe:") != std::string::npos);
  CHECK(ended.out.find("rondo-secret") == std::string::npos);
}
