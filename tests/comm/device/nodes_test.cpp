// SPDX-License-Identifier: Apache-2.0
// Communicators on simulated devices whose ranks are on different nodes: everything goes through proxies and sockets.
// Ranks are threads that meet as processes do.
#include <fmt/format.h>

#include "tests/comm/device/calls.hpp"
#include "tests/comm/device/graph.hpp"
#include "tests/comm/device/nodes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kCounts[] = {0, 1, 17, 1001, 9973};
// Which node each rank is on.
const std::vector<std::vector<int>> kPlacements{{0, 1}, {0, 0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 2}};

template <class T, std::size_t N>
constexpr int count_of(const T (&)[N]) {
  return static_cast<int>(N);
}

Options on_cpu() {
  Options options;
  options.determinism = Determinism::reproducible;
  return options;
}

}  // namespace

TEST_CASE("collectives across nodes do what those on the CPU do") {
  const std::vector<int> sizes{count_of(kCollectives), static_cast<int>(kPlacements.size()), count_of(kAlgorithms),
                               count_of(kCounts), 2};
  const auto cases = PairwiseCases(sizes, rotating_seed()).all();
  for (std::size_t placement = 0; placement < kPlacements.size(); ++placement) {
    const auto& nodes = kPlacements[placement];
    const int world = static_cast<int>(nodes.size());
    for (std::size_t algorithm = 0; algorithm < std::size(kAlgorithms); ++algorithm) {
      std::vector<CallCase> calls;
      for (const auto& v : cases) {
        if (v[1] != static_cast<int>(placement) || v[2] != static_cast<int>(algorithm)) continue;
        calls.push_back({.collective = kCollectives[v[0]],
                         .dtype = v[4] != 0 ? DataType::i64 : DataType::f32,
                         .count = kCounts[v[3]],
                         .root = v[0] % world,
                         .misalignment = static_cast<std::size_t>(v[4])});
      }
      const Setting setting("RONDO_ALGORITHM", kAlgorithms[algorithm]);
      std::vector<std::vector<Bytes>> got(calls.size(), std::vector<Bytes>(nodes.size()));
      on_nodes(nodes, [&](Communicator& comm) {
        for (std::size_t i = 0; i < calls.size(); ++i) {
          got[i][static_cast<std::size_t>(comm.rank())] = after_call(comm, calls[i]);
        }
      });
      for (std::size_t i = 0; i < calls.size(); ++i) {
        INFO(name_of(calls[i].collective)
             << " of " << calls[i].count << ", placement " << placement << ", " << kAlgorithms[algorithm]);
        CHECK(got[i] == run_case(world, on_cpu(), calls[i]));
      }
    }
  }
}

TEST_CASE("messages of a group cross nodes and stay within one together") {
  on_nodes({0, 0, 1, 1}, [](Communicator& comm) {
    const int self = comm.rank();
    const std::size_t count = 5000;
    for (int round = 0; round < 3; ++round) {
      std::vector<DeviceArray<std::int32_t>> out, in;
      for (int peer = 0; peer < 4; ++peer) {
        out.emplace_back(comm.device(), ramp(10 * self + peer + round, count));
        in.emplace_back(comm.device(), count);
      }
      auto group = comm.group();
      for (std::size_t peer = 0; peer < 4; ++peer) {
        group.send(out[peer].span(), static_cast<int>(peer));
        group.recv(in[peer].span(), static_cast<int>(peer));
      }
      group.end();
      comm.synchronize();
      for (int peer = 0; peer < 4; ++peer) {
        expect(in[static_cast<std::size_t>(peer)].to_host() == ramp(10 * peer + self + round, count),
               fmt::format("what rank {} sent", peer));
      }
    }
  });
}

TEST_CASE("graphs are replayed over the proxy, at once and after a pause") {
  on_nodes({0, 0, 1}, [](Communicator& comm) {
    const DeviceStream stream(comm.device());
    const std::size_t count = 3000;
    DeviceArray<std::int32_t> data(comm.device(), count);
    must(api_under_test().SetDevice(comm.device().index));
    Graph graph(static_cast<cudaStream_t>(stream.get()),
                [&] { comm.all_reduce(data.span(), ReduceOp::sum, stream.get()); });
    for (int round = 0; round < 30; ++round) {
      data.copy_from(ramp(comm.rank(), count));
      graph.launch();
      comm.synchronize(stream.get());
      expect_sum_of_ramps(data.to_host(), 3);
    }
  });
}

// Whose sums the type does not hold, though it holds their average: see rondo/reduce_op.hpp.
TEST_CASE("averages of the largest 16-bit floats across nodes are right, of any length") {
  for (const auto& nodes : kPlacements) {
    on_nodes(nodes, [](Communicator& comm) {
      for (const std::size_t count : {std::size_t{5}, std::size_t{1001}, std::size_t{60'000}}) {
        std::vector<float16> values(count, float16(65504.0F));
        values[1] = float16(comm.rank() % 2 == 0 ? 65504.0F : -65504.0F);
        values[2] = float16(comm.rank() == 0 ? 65504.0F : 0.0F);
        DeviceArray<float16> data(comm.device(), values);
        comm.all_reduce(data.span(), ReduceOp::average);
        comm.synchronize();
        const auto got = data.to_host();
        const int ranks = comm.world_size();
        expect(got[0] == float16(65504.0F) && got[count - 1] == float16(65504.0F), "the average of the largest");
        expect(got[1] == float16(ranks % 2 == 0 ? 0.0F : 65504.0F / static_cast<float>(ranks)), "of both signs");
        expect(got[2] == float16(65504.0F / static_cast<float>(ranks)), "of one");
      }
    });
  }
}

TEST_CASE("a mismatch across nodes names both ranks and the field") {
  const bool dtype = GENERATE(false, true);
  const auto begun = Clock::now();
  const auto errors = run_on_nodes({0, 1}, on_sim(), [&](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 8000);
    const bool odd = comm.rank() == 1;
    comm.all_reduce(memory.data(), memory.data(), odd && !dtype ? 999 : 1000,
                    odd && dtype ? DataType::i32 : DataType::f32, ReduceOp::sum);
    comm.synchronize();
  });
  CHECK(Clock::now() - begun < 10s);
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(contains(sentence_of(error), dtype ? "dtype" : "count"));
    CHECK(contains(sentence_of(error), "rank 0"));
    CHECK(contains(sentence_of(error), "rank 1"));
  }
}

TEST_CASE("ranks that wait for each other across nodes find out that they called different things") {
  const auto begun = Clock::now();
  const auto errors = run_on_nodes({0, 1}, on_sim(), [](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 8000);
    comm.broadcast(memory.data(), memory.data(), 1000, DataType::f32, 1 - comm.rank());
    comm.synchronize();
  });
  CHECK(Clock::now() - begun < 5s);
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(contains(sentence_of(error), "root"));
  }
}

// Ranks 0 and 1 wait for rank 2 long enough to tell each other, each for as many elements as it shares with it.
TEST_CASE("ranks that wait in an all_to_all_v do not take each other's counts for their own") {
  on_nodes({0, 1, 2}, [](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const std::vector<std::size_t> counts{100 * rank, 100 * (rank + 1), 100 * (rank + 2)};
    const DeviceMemory send(comm.device(), 4000), recv(comm.device(), 4000);
    const auto until = Clock::now() + 300ms;
    while (rank == 2 && Clock::now() < until) std::this_thread::yield();
    comm.all_to_all_v(send.data(), counts, recv.data(), counts, DataType::f32);
    comm.synchronize();
  });
}

TEST_CASE("who leaves early has sent what the others need, and who is needed is named") {
  const auto errors = run_on_nodes({0, 1}, on_sim(), [](Communicator& comm) {
    DeviceArray<std::int32_t> data(comm.device(), ramp(0, 1000));
    comm.broadcast(data.span(), 0);
    if (comm.rank() == 0) {
      comm.synchronize();
      return;
    }
    const auto until = Clock::now() + 300ms;
    while (Clock::now() < until) std::this_thread::yield();  // it has long gone
    comm.synchronize();
    expect(data.to_host() == ramp(0, 1000), "the broadcast");
    comm.barrier();
    comm.synchronize();
  });
  CHECK(!errors[0]);
  INFO(sentence_of(errors[1]));
  CHECK((code_of(errors[1]) == ErrorCode::peer_lost || code_of(errors[1]) == ErrorCode::aborted));
  CHECK(contains(sentence_of(errors[1]), "rank 0"));
}
