// SPDX-License-Identifier: Apache-2.0
// What goes wrong in kernels is everybody's failure, with the sentences of the CPU: mismatches, deadlines, abort,
// departures. Catch2's macros are for one thread: bodies report by throwing.
#include <fmt/format.h>

#include <atomic>
#include <chrono>

#include "tests/comm/device/graph.hpp"
#include "tests/comm/device/worlds.hpp"
#include "tests/kernels/soft/kernels.hpp"
#include "tests/support/await_failure.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

struct Wrong {
  std::string field;
  std::function<void(Communicator&, void*, std::size_t)> call;  // where the others reduce so many
};

const std::vector<Wrong>& wrongs() {
  static const std::vector<Wrong> all{
      {"count", [](auto& c, void* p, std::size_t) { c.all_reduce(p, p, 2, DataType::f32, ReduceOp::sum); }},
      {"count", [](auto& c, void* p, std::size_t) { c.all_reduce(p, p, 0, DataType::f32, ReduceOp::sum); }},
      {"dtype", [](auto& c, void* p, std::size_t n) { c.all_reduce(p, p, n, DataType::i32, ReduceOp::sum); }},
      {"reduce_op", [](auto& c, void* p, std::size_t n) { c.all_reduce(p, p, n, DataType::f32, ReduceOp::max); }},
      {"called", [](auto& c, void* p, std::size_t n) { c.broadcast(p, p, n, DataType::f32, 0); }},
      {"called", [](auto& c, void*, std::size_t) { c.barrier(); }},
  };
  return all;
}

}  // namespace

TEST_CASE("device communicators: a mismatch reaches every rank and names both ranks and the field", "[faults]") {
  const std::size_t which = GENERATE(0u, 1u, 2u, 3u, 4u, 5u);
  const int culprit = GENERATE(0, 2);
  const std::size_t count = GENERATE(5000u, 500u);  // over windows, pushed
  const auto begun = Clock::now();
  const auto errors = run_ranks(3, on_sim(), [&](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 5000 * sizeof(float));
    if (comm.rank() == culprit) {
      wrongs()[which].call(comm, memory.data(), count);
    } else {
      comm.all_reduce(memory.data(), memory.data(), count, DataType::f32, ReduceOp::sum);
    }
    comm.barrier();
    comm.synchronize();
  });
  CHECK(Clock::now() - begun < 20s);
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(contains(sentence_of(error), wrongs()[which].field));
    CHECK(contains(sentence_of(error), fmt::format("rank {}", culprit)));
    CHECK(sentence_of(error) == sentence_of(errors[0]));
  }
}

TEST_CASE("device communicators: messages that differ name both ranks and the field", "[faults]") {
  const bool other_count = GENERATE(false, true);
  const auto errors = run_ranks(2, on_sim(), [&](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 400);
    if (comm.rank() == 0) comm.send(memory.data(), 100, DataType::f32, 1);
    if (comm.rank() == 1)
      comm.recv(memory.data(), other_count ? 99 : 100, other_count ? DataType::f32 : DataType::i32, 0);
    comm.barrier();
    comm.synchronize();
  });
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(contains(sentence_of(error), other_count ? "count of a message" : "dtype of a message"));
  }
}

TEST_CASE("device communicators: a deadline passes, and who is missing is named", "[faults]") {
  const auto errors = run_ranks(3, on_sim(500ms), [](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 400);
    if (comm.rank() == 1) await_failure(comm);
    comm.all_reduce(memory.data(), memory.data(), 100, DataType::f32, ReduceOp::sum);
    comm.synchronize();
  });
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::timeout);
    CHECK(contains(sentence_of(error), "has waited "));
    CHECK(contains(sentence_of(error), " s in all_reduce #1 of 100 f32, sum for rank"));
    CHECK(contains(sentence_of(error), "channel 0"));
  }
}

TEST_CASE("device communicators: abort() from another thread ends what runs, and the stream goes on", "[faults]") {
  auto ranks = Communicator::local(2, on_sim());
  Communicator& comm = ranks[0];
  const DeviceStream stream(comm.device());
  const DeviceMemory memory(comm.device(), 400);
  comm.all_reduce(memory.data(), memory.data(), 100, DataType::f32, ReduceOp::sum, stream.get());
  Work work = comm.async().barrier(stream.get());
  CHECK_FALSE(work.wait_for(50ms));
  std::thread other([&] { comm.abort(); });
  const auto begun = Clock::now();
  CHECK_THROWS_AS(comm.synchronize(stream.get()), Error);
  CHECK(Clock::now() - begun < 5s);
  other.join();
  CHECK(work.done());
  CHECK(code_of(work.error()) == ErrorCode::aborted);
  CHECK_THROWS_AS(ranks[1].barrier(), Error);
  stream.synchronize();
  CHECK(api_under_test().StreamQuery(static_cast<cudaStream_t>(stream.get())) == cudaSuccess);
}

TEST_CASE("device communicators: one destroyed while its kernels wait ends soon, and the peer learns of it",
          "[faults]") {
  auto ranks = Communicator::local(3, on_sim());
  const DeviceMemory memory(ranks[0].device(), 400);
  ranks[0].all_reduce(memory.data(), memory.data(), 100, DataType::f32, ReduceOp::sum);
  const auto begun = Clock::now();
  { const Communicator gone = std::move(ranks[0]); }
  CHECK(Clock::now() - begun < 7s);
  CHECK_THROWS_AS(ranks[1].check(), Error);
}

TEST_CASE("device communicators: a rank that leaves is named by those that need it", "[faults]") {
  const auto errors = run_ranks(3, on_sim(), [](Communicator& comm) {
    if (comm.rank() == 1) return;
    comm.barrier();
    comm.synchronize();
  });
  CHECK(code_of(errors[0]) == ErrorCode::peer_lost);
  INFO(sentence_of(errors[0]));
  CHECK(contains(sentence_of(errors[0]), "rank 1 left while rank"));
  CHECK(sentence_of(errors[2]) == sentence_of(errors[0]));
}

// What keeps the stream busy is a kernel of the simulated runtime's tests. On a device that both share, what rank 1
// frees must find a call of rank 0's there: else it waits for that kernel at once, and rank 0 for it.
TEST_CASE("device communicators: a wait that is over is not held against a rank that leaves", "[faults][sim]") {
  std::atomic<bool> waits{false}, receives{false};
  std::uint32_t gate[2] = {0, 0};  // shut; nobody has come
  on_ranks(
      2,
      [&](Communicator& comm) {
        const DeviceStream stream(comm.device());
        DeviceArray<std::int32_t> data(comm.device(), ramp(comm.rank(), 100));
        if (comm.rank() == 1) {
          await(waits);
          comm.barrier();
          comm.send(data.span(), 0);
          comm.synchronize();
          await(receives);
          return;  // and leaves
        }
        Work work = comm.async().barrier(stream.get());
        expect(!work.wait_for(100ms), "it did not wait for rank 1");
        waits = true;
        comm.synchronize(stream.get());
        must(api_under_test().SetDevice(comm.device().index));
        soft::testing::Gate shut{gate, 1, gate + 1};
        const std::unique_ptr<std::uint32_t, void (*)(std::uint32_t*)> opened_at_last(
            gate, [](std::uint32_t* word) { __atomic_store_n(word, 1u, __ATOMIC_RELEASE); });
        void* arguments[] = {&shut};
        must(api_under_test().LaunchKernel(&soft::testing::kGate, dim3(1), dim3(32), arguments, 0,
                                           static_cast<cudaStream_t>(stream.get())));
        comm.recv(data.span(), 1, stream.get());
        receives = true;
        const auto until = Clock::now() + 2s;  // a rank that is waited for is blamed after one
        while (Clock::now() < until) {
          comm.check();
          std::this_thread::yield();
        }
        __atomic_store_n(gate, 1u, __ATOMIC_RELEASE);
        comm.synchronize(stream.get());
        expect(data.to_host() == ramp(1, 100), "wrong message");
      },
      on_sim());
}
