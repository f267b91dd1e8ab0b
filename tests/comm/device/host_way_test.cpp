// SPDX-License-Identifier: Apache-2.0
// Calls of devices by way of host memory: what they compute, in which order, how they fail, and that no kernel runs.
// Catch2's macros are for one thread: bodies report by throwing.
#include <fmt/format.h>

#include <atomic>

#include "tests/comm/device/calls.hpp"
#include "tests/comm/device/graph.hpp"
#include "tests/comm/device/worlds.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/kernels/soft/kernels.hpp"
#include "tests/support/await_failure.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

std::atomic<int> kernels_launched{0};
const cuda::Api& kernel_counting_api() {
  static const cuda::Api api = [] {
    cuda::Api copy = api_under_test();
    copy.LaunchKernel = [](const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                           cudaStream_t stream) {
      ++kernels_launched;
      return api_under_test().LaunchKernel(kernel, grid, block, arguments, shared, stream);
    };
    return copy;
  }();
  return api;
}

constexpr std::size_t kHostCounts[] = {0, 1, 700, 6001};
constexpr DataType kHostTypes[] = {DataType::f32, DataType::u8, DataType::bf16, DataType::i64, DataType::f8e4m3};

}  // namespace

TEST_CASE("host way: every collective does what it does on the CPU, in order, and launches no kernel") {
  const Setting setting("RONDO_PROTOCOL", "host");
  const auto cases = PairwiseCases({static_cast<int>(std::size(kCollectives)), static_cast<int>(std::size(kHostTypes)),
                                    static_cast<int>(std::size(kHostCounts)), 2, 3},
                                   rotating_seed())
                         .all();
  std::vector<CallCase> calls;
  for (const auto& v : cases) {
    if (kCollectives[v[0]] == Collective::all_to_all_v) continue;  // each rank's counts are its own
    calls.push_back({.collective = kCollectives[v[0]],
                     .dtype = kHostTypes[v[1]],
                     .count = kHostCounts[v[2]],
                     .root = v[4],
                     .in_place = v[3] != 0 && may_be_in_place(kCollectives[v[0]])});
  }
  std::vector<std::vector<Bytes>> got(calls.size(), std::vector<Bytes>(3));
  kernels_launched = 0;
  rethrow(in_threads(comm::make_local(3, on_sim(), &kernel_counting_api()), [&](Communicator& comm) {
    std::vector<DeviceMemory> kept;  // what frees it knows nothing of the calls of another table
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Arena arena(calls[i], comm.rank(), comm.world_size());
      Bytes& bytes = got[i][static_cast<std::size_t>(comm.rank())];
      bytes = arena.bytes();
      kept.emplace_back(comm.device(), bytes.size());
      kept.back().copy_from(bytes.data(), bytes.size());
      comm.submit(arena.call(static_cast<std::byte*>(kept.back().data())));
      expect(last_algorithm(comm) == "host", "it took " + last_algorithm(comm));
      comm.synchronize();
      kept.back().copy_to(bytes.data(), bytes.size());
    }
    comm.all_gather_bytes({});
  }));
  CHECK(kernels_launched == 0);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    INFO(name_of(calls[i].collective) << " of " << calls[i].count << " " << name_of(calls[i].dtype));
    CHECK(got[i] == run_case(3, Options{}, calls[i]));
  }
}

TEST_CASE("host way: calls come in the order of their streams, and nobody waits for them where they are made") {
  const Setting setting("RONDO_PROTOCOL", "host");
  on_ranks(
      2,
      [](Communicator& comm) {
        const std::size_t count = 5000;
        const DeviceStream one(comm.device()), other(comm.device());
        DeviceArray<std::int32_t> data(comm.device(), ramp(comm.rank(), count));
        if (comm.rank() == 1) comm.all_gather_bytes({});  // rank 0 has made all its calls by then
        comm.all_reduce(data.span(), ReduceOp::sum, one.get());
        comm.all_reduce(data.span(), ReduceOp::sum, other.get());
        Work last = comm.async().all_reduce(data.span(), ReduceOp::sum, one.get());
        if (comm.rank() == 0) {
          expect(!last.done(), "rank 1 has not come");
          comm.all_gather_bytes({});
        }
        last.wait();
        expect_sum_of_ramps(data.to_host(), 2, 4);
      },
      on_sim());
}

TEST_CASE("host way: longer calls, other protocols and captured ones go over kernels") {
  {
    const Setting setting("RONDO_PROTOCOL", "host");
    on_ranks(
        2,
        [](Communicator& comm) {
          const std::size_t count = (1 << 18) + 1;
          const DeviceStream stream(comm.device());
          DeviceArray<std::int32_t> data(comm.device(), ramp(comm.rank(), count));
          comm.all_reduce(data.span(), ReduceOp::sum, stream.get());
          comm.synchronize(stream.get());
          expect(last_algorithm(comm) != "host", "it is longer than device_host_bytes");
          must(api_under_test().SetDevice(comm.device().index));
          DeviceArray<std::int32_t> few(comm.device(), ramp(comm.rank(), 1000));
          Graph graph(static_cast<cudaStream_t>(stream.get()),
                      [&] { comm.all_reduce(few.span(), ReduceOp::sum, stream.get()); });
          expect(last_algorithm(comm) != "host", "it is captured");
          graph.launch();
          comm.synchronize(stream.get());
          expect_sum_of_ramps(few.to_host(), 2);
        },
        on_sim());
  }
  on_ranks(
      2,
      [](Communicator& comm) {
        comm.barrier();
        comm.synchronize();
        expect(last_algorithm(comm) != "host", "threads do not take turns");
      },
      on_sim());
}

TEST_CASE("host way: a mismatch reaches every rank and names both ranks and the field") {
  const Setting setting("RONDO_PROTOCOL", "host");
  const int which = GENERATE(0, 1, 2, 3);
  const auto begun = Clock::now();
  const auto errors = run_ranks(3, on_sim(), [&](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 2 << 20);
    const bool odd = comm.rank() == 1;
    // The last is too long for the host, and meets nobody there.
    const std::size_t count = !odd ? 1000 : which == 0 ? 999 : which == 1 ? 0 : which == 3 ? 300'000 : 1000;
    comm.all_reduce(memory.data(), memory.data(), count, odd && which == 2 ? DataType::i32 : DataType::f32,
                    ReduceOp::sum);
    comm.synchronize();
    comm.barrier();
    comm.synchronize();
  });
  CHECK(Clock::now() - begun < 20s);
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(contains(sentence_of(error), "rank 1"));
    CHECK(contains(sentence_of(error), which == 2 ? "dtype" : "count"));
  }
}

// Its next calls would else be taken for those that it captured, of the same count and type.
TEST_CASE("host way: a call that one rank captures and another does not is found at once, by name") {
  const Setting setting("RONDO_PROTOCOL", "host");
  const int captor = GENERATE(0, 2);
  const auto begun = Clock::now();
  const auto errors = run_ranks(3, on_sim(), [&](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 4000);
    const DeviceStream stream(comm.device());
    const auto sum = [&] {
      comm.all_reduce(memory.data(), memory.data(), 1000, DataType::f32, ReduceOp::sum, stream.get());
    };
    must(api_under_test().SetDevice(comm.device().index));
    sum();
    comm.synchronize(stream.get());
    if (comm.rank() == captor) {
      std::exception_ptr second;  // here, if the others have come before
      const Graph graph(static_cast<cudaStream_t>(stream.get()), [&] {
        try {
          sum();
        } catch (const Error&) {
          second = std::current_exception();
        }
      });
      if (second != nullptr) std::rethrow_exception(second);
      comm.barrier();
    } else {
      sum();
      comm.synchronize(stream.get());
    }
    comm.barrier();
    comm.synchronize();
  });
  CHECK(Clock::now() - begun < 20s);
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(
        contains(sentence_of(error), "rank " + std::to_string(captor) + " captured all_reduce #2 of 1000 f32, sum in"));
    CHECK(contains(sentence_of(error), "capture it on all ranks or on none"));
  }
}

TEST_CASE("host way: a deadline, a departure and abort() end what waits, and the stream goes on") {
  const Setting setting("RONDO_PROTOCOL", "host");
  const auto late = run_ranks(3, on_sim(500ms), [](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 400);
    if (comm.rank() == 1) await_failure(comm);
    comm.all_reduce(memory.data(), memory.data(), 100, DataType::f32, ReduceOp::sum);
    comm.synchronize();
  });
  for (const auto& error : late) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::timeout);
    CHECK(contains(sentence_of(error), "rank 1"));
    CHECK(contains(sentence_of(error), "all_reduce #1 of 100 f32, sum"));
  }
  const auto left = run_ranks(3, on_sim(), [](Communicator& comm) {
    if (comm.rank() == 1) return;
    comm.barrier();
    comm.synchronize();
  });
  CHECK(!left[1]);
  for (const int rank : {0, 2}) {
    INFO(sentence_of(left[static_cast<std::size_t>(rank)]));
    CHECK(contains(sentence_of(left[static_cast<std::size_t>(rank)]), "rank 1"));
  }
  auto ranks = Communicator::local(2, on_sim());
  const DeviceStream stream(ranks[0].device());
  const DeviceMemory memory(ranks[0].device(), 400);
  Work work =
      ranks[0].async().all_reduce(memory.data(), memory.data(), 100, DataType::f32, ReduceOp::sum, stream.get());
  CHECK_FALSE(work.wait_for(50ms));
  std::thread other([&] { ranks[0].abort(); });
  const auto begun = Clock::now();
  CHECK_THROWS_AS(ranks[0].synchronize(stream.get()), Error);
  CHECK(Clock::now() - begun < 10s);
  other.join();
  CHECK(code_of(work.error()) == ErrorCode::aborted);
  stream.synchronize();
}
