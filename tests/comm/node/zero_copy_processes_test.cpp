// SPDX-License-Identifier: Apache-2.0
// Windows of ranks that are processes: one is killed while peers use its memory; the memory cannot be made at all.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace std::chrono_literals;
using test::expect;

namespace {

constexpr auto kLimit = 30s;
constexpr std::size_t kCount = 2'000'003;

template <class Body>
std::vector<test::Ended> run_processes(int world_size, Body body) {
  return test::fork_ranks(world_size, kLimit, [&](int rank, const std::shared_ptr<Store>& store) {
    Communicator comm = test::join_forked(rank, world_size, store);
    body(comm);
  });
}

bool zero_copy(const Communicator& comm) { return test::last_algorithm(comm) == "zero_copy"; }

void reduce_ones(Communicator& comm, const Window<float>& window, bool in_place) {
  std::fill(window.span().begin(), window.span().end(), 1.0F);
  comm.all_reduce(window.span(), ReduceOp::sum);
  expect(zero_copy(comm) == in_place, "it went the other way");
  for (const float value : window.span()) expect(value == static_cast<float>(comm.world_size()), "a wrong sum");
}

}  // namespace

TEST_CASE("processes use each other's windows in place") {
  const int world = GENERATE(2, 3);
  test::check_ended_well(run_processes(world, [](Communicator& comm) {
    const auto window = comm.allocate<float>(kCount), other = comm.allocate<float>(kCount);
    for (int i = 0; i < 3; ++i) reduce_ones(comm, i % 2 == 0 ? window : other, true);
  }));
}

TEST_CASE("a rank that is killed while peers use its window is named, and they live on") {
  const bool counted = GENERATE(false, true);
  for (int round = 0; round < 6; ++round) {
    const auto ended = run_processes(3, [&](Communicator& comm) {
      const auto window = comm.allocate<float>(kCount), other = comm.allocate<float>(kCount);
      const std::vector<std::size_t> counts(3, kCount / 3);
      std::atomic<int> calls{0};
      std::jthread killer;
      if (comm.rank() == 1) killer = test::kill_after(calls, 3 + round);
      const auto error = test::thrown_by([&] {
        for (;;) {
          if (counted) {
            comm.all_to_all_v(window.data(), counts, other.data(), counts, DataType::f32);
          } else {
            comm.all_reduce(window.span(), ReduceOp::sum);
          }
          expect(zero_copy(comm), "it was copied");
          ++calls;
        }
      });
      expect(test::code_of(error) == ErrorCode::peer_lost, test::sentence_of(error));
      expect(test::sentence_of(error).find("rank 1 ") != std::string::npos, test::sentence_of(error));
      for (float& value : window.span()) value = 1;  // still ours
    });
    CHECK(ended[1].signal == SIGKILL);
    CHECK(ended[0].failure == "");
    CHECK(ended[2].failure == "");
  }
}

TEST_CASE("where the memory cannot be made, all of them go on copying") {
  test::check_ended_well(run_processes(3, [](Communicator& comm) {
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    if (comm.rank() == 0) {  // which makes what the others map
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit small{1 << 20, before.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &small);
    }
    const auto window = comm.allocate<float>(kCount);
    ::setrlimit(RLIMIT_FSIZE, &before);
    reduce_ones(comm, window, false);
    const auto next = comm.allocate<float>(kCount);
    reduce_ones(comm, next, true);
  }));
}
