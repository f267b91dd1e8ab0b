// SPDX-License-Identifier: Apache-2.0
// rondo::spawn: ranks as forked children.
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

std::vector<std::string> spawner(int world_size, const std::string& mode) {
  return {tool("spawner"), std::to_string(world_size), mode};
}

}  // namespace

TEST_CASE("spawned ranks reduce together and their success is the caller's") {
  const int world_size = GENERATE(1, 2, 3, 4, 7);
  Running program(spawner(world_size, "reduce"));
  CHECK(program.lines("rank ", static_cast<std::size_t>(world_size)).size() == static_cast<std::size_t>(world_size));
  const auto ended = program.wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
}

TEST_CASE("an exception in one rank is named, and is the failure of all") {
  const auto ended = run(spawner(3, "throw"));
  CHECK(ended.code == 1);
  CHECK(ended.err.starts_with("rondo: rank 1 (pid "));
  CHECK(ended.err.ends_with(") failed: out of paper\n"));
  CHECK(ended.seconds < 5);
}

TEST_CASE("an exit code and a signal are named too") {
  const auto exited = run(spawner(3, "exit"));
  CHECK(exited.code == 7);
  CHECK(exited.seconds < 3);  // the others were told to end, long before they would have been killed
  CHECK(exited.err.starts_with("rondo: rank 1 (pid "));
  CHECK(exited.err.ends_with(") exited with code 7\n"));
  const auto killed = run(spawner(3, "kill"));
  CHECK(killed.code == 128 + SIGKILL);
  CHECK(killed.err.starts_with("rondo: rank 1 (pid "));
  CHECK(killed.err.ends_with(") was killed by signal 9 (Killed)\n"));
  for (const char* rank : {"rank 0 noticed", "rank 2 noticed"}) CHECK(killed.out.find(rank) != std::string::npos);
}

TEST_CASE("a mismatch reaches every rank") {
  const auto ended = run(spawner(3, "mismatch"));
  CHECK(ended.code == 1);
  CHECK(ended.err.find("count") != std::string::npos);
}

TEST_CASE("SIGKILL of the caller, or of the supervisor, leaves no rank") {
  Running program(spawner(3, "stay"));
  const Watched ranks(program.lines("pid ", 3));
  program.signal(SIGKILL);
  CHECK(ranks.all_gone_within(1s));
}

TEST_CASE("a signal to the caller ends the ranks") {
  Running program(spawner(2, "stay"));
  const Watched ranks(program.lines("pid ", 2));
  program.signal(SIGTERM);
  const auto ended = program.wait();
  CHECK(ended.code == 128 + SIGTERM);
  CHECK(ranks.all_gone_within(0s));
}

TEST_CASE("spawn refuses a process with other threads by their number, and serves it when they are gone") {
  const int others = GENERATE(1, 2);
  std::promise<void> over;
  const auto ended = over.get_future().share();
  std::vector<std::thread> threads;
  for (int i = 0; i < others; ++i) threads.emplace_back([ended] { ended.wait(); });
  const auto reduce = [](rondo::Communicator& comm) { comm.barrier(); };
  std::string refusal;
  try {
    rondo::spawn(2, reduce);
  } catch (const rondo::Error& error) {
    refusal = error.error_code() == rondo::ErrorCode::invalid_argument ? error.what() : "another code";
  }
  over.set_value();
  for (auto& thread : threads) thread.join();
  CHECK(refusal.starts_with("spawn forks its ranks, which would lack " + std::to_string(others) + " other thread"));
  CHECK(rondo::spawn(2, reduce) == 0);
}

TEST_CASE("spawn needs at least one rank") {
  CHECK_THROWS_AS(rondo::spawn(0, [](rondo::Communicator&) {}), rondo::Error);
}
