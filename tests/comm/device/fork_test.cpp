// SPDX-License-Identifier: Apache-2.0
// Ranks on simulated devices, and as threads, in a process that forks: the child can use nothing of theirs, ends in
// silence, and they go on. A program of its own: here threads are running when it forks.
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/comm/device/worlds.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo;
using namespace rondo::test;

struct Rank {
  Communicator comm;
  Window<std::int32_t> window{};
  Work work{};
};

constexpr std::size_t kCount = 10'000;

void use(Rank& rank) {
  const auto mine = ramp(rank.comm.rank(), kCount);
  const Device device = rank.comm.device();
  std::vector<std::int32_t> sum(kCount);
  copy_on(device, {}, rank.window.data(), mine.data(), kCount * sizeof(std::int32_t));
  rank.comm.synchronize();
  rank.work = rank.comm.async().all_reduce(rank.window.span(), ReduceOp::sum);
  rank.work.wait();
  copy_on(device, {}, sum.data(), rank.window.data(), kCount * sizeof(std::int32_t));
  rank.comm.synchronize();
  expect_sum_of_ramps(sum, rank.comm.world_size());
}

template <class Body>
void on_all(std::vector<Rank>& ranks, Body body) {
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] { errors[r] = thrown_by([&] { body(ranks[r]); }); });
  for (auto& thread : threads) thread.join();
  rethrow(errors);
}

// In the child: how many calls were not refused as they should.
int misuse(std::vector<Rank>& ranks) {
  int wrong = 0;
  for (Rank& rank : ranks) {
    const auto refused = [&](auto call) {
      const auto error = thrown_by(call);
      const bool good =
          code_of(error) == ErrorCode::invalid_argument && sentence_of(error).find("forked child") != std::string::npos;
      if (!good) ++wrong;
    };
    refused([&] { rank.comm.all_reduce(rank.window.span(), ReduceOp::sum); });
    refused([&] { rank.comm.async().all_reduce(rank.window.span(), ReduceOp::sum); });
    refused([&] { rank.comm.synchronize(); });
    refused([&] { rank.comm.check(); });
    refused([&] { rank.comm.allocate<float>(1); });
    refused([&] { rank.work.wait(); });
  }
  ranks.clear();
  return wrong;
}

}  // namespace

TEST_CASE("a child of ranks that are threads, on the CPU and on devices, ends in silence and they go on") {
  const bool on_device = GENERATE(false, true);
  Options options;
  if (on_device) options.device = Device::sim();
  std::vector<Rank> ranks;
  for (auto& comm : Communicator::local(2, options)) ranks.push_back({.comm = std::move(comm)});
  on_all(ranks, [](Rank& rank) {
    rank.window = rank.comm.allocate<std::int32_t>(kCount);
    if (rank.comm.device().kind != Device::Kind::cpu) return use(rank);
    rank.work = rank.comm.async().all_reduce(rank.window.span(), ReduceOp::sum);
    rank.work.wait();
  });
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::_exit(misuse(ranks));
  }
  ::close(ends[1]);
  std::string said(4096, '\0');
  const ssize_t bytes = ::read(ends[0], said.data(), said.size());
  said.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(said == "");
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  on_all(ranks, [](Rank& rank) {
    std::vector<std::int32_t> value{rank.comm.rank()};
    if (rank.comm.device().kind != Device::Kind::cpu) return use(rank);
    rank.comm.all_reduce(value, ReduceOp::sum);
    expect(value[0] == 1, "a wrong sum");
  });
  on_all(ranks, [](Rank& rank) { rank = {}; });
}
