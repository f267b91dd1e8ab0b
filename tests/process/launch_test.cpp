// SPDX-License-Identifier: Apache-2.0
// What rondorun starts, and how it ends.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {

using namespace rondo::test;

std::vector<std::string> shell(const std::string& ranks, const std::string& script) {
  return rondorun({"--nproc-per-node", ranks, "--", "sh", "-c", script});
}

std::size_t line_count(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("all ranks run and their success is the launcher's") {
  const auto ended = run(shell("3", "echo $RANK/$WORLD_SIZE"));
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
  CHECK(line_count(ended.out) == 3);
  for (const char* line : {"[0] 0/3\n", "[1] 1/3\n", "[2] 2/3\n"}) CHECK(ended.out.find(line) != std::string::npos);
}

TEST_CASE("the first failure is named once, stops the others and gives the exit code") {
  const auto ended = run(shell("4", "test $RANK = 2 && exit 7; exec sleep 60"));
  CHECK(ended.code == 7);
  CHECK(std::regex_match(ended.err, std::regex("rondorun: rank 2 \\(pid [0-9]+\\) exited with code 7[^\n]*\n")));
  CHECK(ended.seconds < 3);
}

TEST_CASE("why a rank fails is what it wrote into the error file, if that can be read") {
  const auto failed_with = [](const std::string& json) {
    return run(
        shell("2", "test $RANK = 1 || exec sleep 60; printf '%s' '" + json + "' > $TORCHELASTIC_ERROR_FILE; exit 3"));
  };
  const auto ends = [](const Ended& ended, const std::string& end) {
    CAPTURE(ended.err);
    CHECK(ended.code == 3);
    CHECK(std::regex_match(ended.err, std::regex("rondorun: rank 1 \\(pid [0-9]+\\) exited with code 3" + end + "\n")));
  };
  ends(failed_with(R"({"message": {"message": "ValueError: no data\nmore", "extraInfo": {"timestamp": "7"}}})"),
       ": ValueError: no data");
  ends(failed_with(R"({"message": "plain"})"), ": plain");
  for (const char* odd : {"", "{", "[1]", R"({"message": 5})", R"({"message": {"message": {}}})", R"({"other": 1})"})
    ends(failed_with(odd), "");
}

TEST_CASE("a rank killed by a signal is named with it") {
  const auto ended = run(shell("2", "test $RANK = 1 && kill -9 $$; exec sleep 60"));
  CHECK(ended.code == 128 + 9);
  CHECK(std::regex_match(ended.err,
                         std::regex("rondorun: rank 1 \\(pid [0-9]+\\) was killed by signal 9 \\(Killed\\)[^\n]*\n")));
}

TEST_CASE("ranks that ignore SIGTERM are killed after the grace period") {
  auto command = shell("3", "test $RANK = 0 && exit 3; trap '' TERM; while :; do sleep 60; done");
  command.insert(command.begin() + 1, {"--grace-period", "0.5"});
  const auto ended = run(command);
  CHECK(ended.code == 3);
  CHECK(ended.seconds > 0.45);
  CHECK(ended.seconds < 5);
}

TEST_CASE("after a failure the others have time to say what it cost them") {
  const auto ended = run(shell("2", "test $RANK = 0 && exit 5; sleep 0.1; echo I noticed; exit 1"));
  CHECK(ended.code == 5);
  CHECK(ended.out == "[1] I noticed\n");
}

TEST_CASE("a program that cannot be started says so") {
  const auto missing = run(rondorun({"--nproc-per-node", "2", "no-such-program"}));
  CHECK(missing.code == 127);
  CHECK(missing.err == "rondorun: cannot start 'no-such-program': No such file or directory\n");
  const auto forbidden = run(rondorun({"/etc/passwd"}));
  CHECK(forbidden.code == 126);
  CHECK(forbidden.err == "rondorun: cannot start '/etc/passwd': Permission denied\n");
}

TEST_CASE("a wrong command line is one sentence and exit code 2") {
  using Words = std::vector<std::string>;
  const std::vector<std::pair<Words, std::string>> wrong{
      {{}, "no program given"},
      {{"--"}, "no program given"},
      {{""}, "no program given"},
      {{"--frobnicate", "true"}, "unknown flag --frobnicate;"},
      {{"--nproc-per-nod=2", "true"}, "did you mean --nproc-per-node?"},
      {{"--master_prt", "1", "true"}, "did you mean --master_port?"},
      {{"-np", "2", "true"}, "did you mean -n?"},
      {{"--nproc-per-node", "0", "true"}, "--nproc-per-node must be"},
      {{"--nproc-per-node", "two", "true"}, "--nproc-per-node must be"},
      {{"--nproc-per-node", "gpu", "true"}, "--nproc-per-node gpu: no GPU is found"},
      {{"--gpus-per-rank", "1", "true"}, "--gpus-per-rank 1: this node has no GPUs to give"},
      {{"--nproc-per-node"}, "--nproc-per-node"},
      {{"--nnodes", "1:4", "true"}, "--master-addr"},
      {{"--nnodes", "4:1", "true"}, "--nnodes MIN:MAX's MAX must be"},
      {{"--nnodes", "0:4", "true"}, "--nnodes must be"},
      {{"--nnodes", "1:", "true"}, "--nnodes MIN:MAX's MAX must be"},
      {{"--rdzv-conf", "read_timeout=3", "true"}, "--rdzv-conf read_timeout=3 is not supported"},
      {{"--rdzv-conf", "join_timeout=0,last_call_timeout=3", "true"}, "--rdzv-conf's join_timeout must be"},
      {{"--nnodes", "2", "true"}, "--master-addr"},
      {{"--nnodes", "2", "--master-addr", "h", "true"}, "--secret-file"},
      {{"--nnodes", "2", "--master-addr", "h", "--master-port", "0", "true"}, "--master-port 0"},
      {{"--nnodes", "2", "--node-rank", "2", "true"}, "--node-rank must be"},
      {{"--max-restarts", "some", "true"}, "--max-restarts must be"},
      {{"--ranks-filter", "0,x", "true"}, "--ranks-filter must be"},
      {{"--local-ranks-filter", "0", "--prefix", "none", "true"}, "--local-ranks-filter cannot be had"},
      {{"--pass-local-rank=--local-rank", "true"}, "--pass-local-rank takes a name without"},
      {{"-m", "--no-python", "module"}, "--no-python cannot be had with -m"},
      {{"--rdzv_backend=etcd", "true"}, "--rdzv-backend etcd"},
      {{"-r", "3", "true"}, "--log-dir"},
      {{"--tee", "0:1", "true"}, "--tee must be"},
      {{"--prefix", "color", "true"}, "--prefix must be"},
      {{"--grace-period", "-1", "true"}, "--grace-period"},
  };
  for (const auto& [words, expected] : wrong) {
    const auto ended = run(rondorun(words));
    INFO(ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.err.starts_with("rondorun: "));
    CHECK(ended.err.find(expected) != std::string::npos);
    CHECK(line_count(ended.err) == 1);
    CHECK(ended.out.empty());
  }
}

TEST_CASE("scripts and modules of Python's are run by python3, what can be executed as it is") {
  const TemporaryFolder folder;
  const auto script = (folder.path / "train.py").string(), program = (folder.path / "run.py").string(),
             module = (folder.path / "part.py").string();
  std::ofstream(script) << "import os, sys; print('script', os.environ['RANK'], sys.argv[1:])\n";
  std::ofstream(module) << "print('module')\n";
  std::ofstream(program) << "#!/bin/sh\necho shell $RANK\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const auto scripts = run(rondorun({"-n", "2", script, "-m", "x"}));
  CAPTURE(scripts.err);
  CHECK(scripts.code == 0);
  CHECK(scripts.out.find("[1] script 1 ['-m', 'x']\n") != std::string::npos);
  CHECK(run(rondorun({program})).out == "[0] shell 0\n");
  CHECK(run(rondorun({"--no-python", script})).code == 126);
  CHECK(run(rondorun({"--run-path", script})).out == "[0] script 0 []\n");
  const auto modules =
      Running(rondorun({"-m", "part"}), {.environment = {"PYTHONPATH=" + folder.path.string()}}).wait();
  CHECK(modules.out == "[0] module\n");
  CHECK(run(rondorun({"--version"})).out.starts_with("rondorun "));
}

TEST_CASE("both spellings of torchrun's flags, and the program's own flags stay its own") {
  const auto ended = run(rondorun({"--nproc_per_node=2", "--no_python", "--rdzv_backend", "c10d", "--rdzv-id=7",
                                   "--standalone", "--max_restarts=0", "echo", "--nproc-per-node", "-m", "--"}));
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
  CHECK(line_count(ended.out) == 2);
  CHECK(ended.out.find("[0] --nproc-per-node -m --\n") != std::string::npos);
}

TEST_CASE("the environment of the ranks") {
  const auto ended = run(rondorun({"--nproc-per-node", "2", "--rdzv-id", "job-7", "--role", "worker", "--interface",
                                   "lo", "--port-range", "4000-4999", "env"}),
                         {.environment = {"RANK=77", "OMP_NUM_THREADS=5", "RONDO_GENERATION=3"}});
  CHECK(ended.code == 0);
  for (const char* line :
       {"[0] RANK=0", "[1] RANK=1", "[0] LOCAL_RANK=0", "[1] LOCAL_RANK=1", "[1] WORLD_SIZE=2",
        "[1] LOCAL_WORLD_SIZE=2", "[1] GROUP_RANK=0", "[1] GROUP_WORLD_SIZE=1", "[1] ROLE_RANK=1",
        "[1] ROLE_WORLD_SIZE=2", "[1] ROLE_NAME=worker", "[1] MASTER_ADDR=127.0.0.1", "[1] TORCHELASTIC_RUN_ID=job-7",
        "[1] TORCHELASTIC_RESTART_COUNT=0", "[1] RONDO_JOB=job-7", "[1] RONDO_GENERATION=0", "[1] RONDO_INTERFACE=lo",
        "[1] RONDO_PORT_RANGE=4000-4999", "[1] OMP_NUM_THREADS=5"})
    CHECK(ended.out.find(std::string(line) + "\n") != std::string::npos);
  CHECK(ended.out.find("RANK=77") == std::string::npos);
  std::smatch port;
  REQUIRE(std::regex_search(ended.out, port, std::regex("MASTER_PORT=([0-9]+)")));
  CHECK(std::stoi(port[1]) > 0);
}

TEST_CASE("standard input goes to local rank 0 alone") {
  const auto ended = run(rondorun({"--nproc-per-node", "2", "cat"}), {.in = "a\nb\n"});
  CHECK(ended.code == 0);
  CHECK(ended.out == "[0] a\n[0] b\n");
}

TEST_CASE("more ranks than the limit of open files allows for, which stays theirs") {
  auto command = rondorun({"--nproc-per-node", "60", "--", "sh", "-c", "ulimit -Sn"});
  command.insert(command.begin(), {"sh", "-c", "ulimit -Sn 40; exec \"$@\"", "sh"});
  const auto ended = run(command);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(line_count(ended.out) == 60);
  CHECK(ended.out.find("[59] 40\n") != std::string::npos);
}

TEST_CASE("fifty jobs at once") {
  std::vector<std::unique_ptr<Running>> jobs;
  for (int i = 0; i < 50; ++i)
    jobs.push_back(std::make_unique<Running>(shell("2", "echo job " + std::to_string(i) + " rank $RANK")));
  for (int i = 0; i < 50; ++i) {
    const auto ended = jobs[static_cast<std::size_t>(i)]->wait();
    CHECK(ended.code == 0);
    CHECK(ended.err.empty());
    CHECK(ended.out.find("[1] job " + std::to_string(i) + " rank 1\n") != std::string::npos);
  }
}

TEST_CASE("a program that wants --local-rank gets it after its own arguments, spelled as it likes") {
  for (const std::string flag : {"local-rank", "local_rank"}) {
    const auto ended = run(rondorun({"--nproc-per-node", "2", "--pass-local-rank", flag, "echo", "--epochs", "2"}));
    CHECK(ended.code == 0);
    CHECK(ended.out.find("[0] --epochs 2 --" + flag + "=0\n") != std::string::npos);
    CHECK(ended.out.find("[1] --epochs 2 --" + flag + "=1\n") != std::string::npos);
  }
}

TEST_CASE("the output of chosen ranks alone") {
  for (const char* flag : {"--ranks-filter", "--local_ranks_filter"}) {
    const auto ended = run(rondorun({"--nproc-per-node", "4", flag, "0,2", "sh", "-c", "echo $RANK; echo $RANK >&2"}));
    CHECK(ended.code == 0);
    CHECK(line_count(ended.out) == 2);
    CHECK(line_count(ended.err) == 2);
    for (const char* line : {"[0] 0\n", "[2] 2\n"}) {
      CHECK(ended.out.find(line) != std::string::npos);
      CHECK(ended.err.find(line) != std::string::npos);
    }
  }
}

TEST_CASE("the last words of a rank whose output is not shown are, when it fails") {
  const auto ended = run(rondorun({"--nproc-per-node", "3", "--ranks-filter", "0", "sh", "-c",
                                   "test $RANK = 1 || exec sleep 60; seq 9999 >&2; echo out of memory >&2; exit 6"}));
  CHECK(ended.code == 6);
  CHECK(ended.out.empty());
  CHECK(ended.err.find("[1] out of memory\nrondorun: rank 1 ") != std::string::npos);
  CHECK(ended.err.size() < 8192 + 2 * 4096);
  CHECK(ended.err.find("[1] 1\n") == std::string::npos);
}

TEST_CASE("a failed job is started again as often as allowed, all ranks of it") {
  const std::string script =
      "echo run $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; "
      "test $TORCHELASTIC_RESTART_COUNT = 2 && exit 0; test $RANK = 1 && kill -9 $$; exec sleep 60";
  const auto restarted = [&](const char* times) {
    return run(rondorun({"--nproc-per-node", "2", "--max-restarts", times, "sh", "-c", script}));
  };
  const auto good = restarted("3");
  INFO(good.out << good.err);
  CHECK(good.code == 0);
  for (const char* line : {"[0] run 0 of 3\n", "[1] run 0 of 3\n", "[0] run 2 of 3\n", "[1] run 2 of 3\n"})
    CHECK(good.out.find(line) != std::string::npos);
  CHECK(good.err.find("was killed by signal 9 (Killed)\nrondorun: starting again: restart 1 of 3\n") !=
        std::string::npos);
  CHECK(good.err.find("restart 2 of 3") != std::string::npos);
  CHECK(good.err.find("restart 3 of 3") == std::string::npos);
  const auto bad = restarted("1");
  CHECK(bad.code == 128 + SIGKILL);
  CHECK(bad.err.find("restart 1 of 1") != std::string::npos);
  CHECK(bad.err.find("restart 2") == std::string::npos);
}

TEST_CASE("the grace period of one run does not kill the next, and what was told to end is not started again") {
  const auto late = run(rondorun({"--nproc-per-node", "2", "--grace-period", "0.6", "--max-restarts", "1", "sh", "-c",
                                  "test $TORCHELASTIC_RESTART_COUNT = 1 && exec sleep 1.2; test $RANK = 0 && exit 4; "
                                  "sleep 60"}));
  INFO(late.err);
  CHECK(late.code == 0);
  Running running(rondorun({"--max-restarts", "5", "sh", "-c", "echo here; exec sleep 60"}));
  running.lines("here", 1);
  running.signal(SIGTERM);
  const auto told = running.wait();
  CHECK(told.code == 128 + SIGTERM);
  CHECK(told.err.find("starting again") == std::string::npos);
  const auto missing = run(rondorun({"--max-restarts", "5", "/nonexistent"}));
  CHECK(missing.code == 127);
  CHECK(missing.err.find("starting again") == std::string::npos);
}

TEST_CASE("a reader slower than two runs gets all that both have written") {
  const auto ended =
      run({"sh", "-c",
           tool("rondorun") + " --max-restarts 1 sh -c 'seq 400000; test $TORCHELASTIC_RESTART_COUNT = 1' "
                              "| (sleep 0.3; wc -l)"});
  CHECK(ended.out.find("800000") != std::string::npos);
  CHECK(ended.err.find("starting again: restart 1 of 1") != std::string::npos);
}
