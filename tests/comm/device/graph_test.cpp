// SPDX-License-Identifier: Apache-2.0
// Calls captured into CUDA graphs: replayed, right each time; and what a live graph means for the communicator's end.
#include "tests/comm/device/graph.hpp"
#include "comm/device/memory/cuda_handles.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

const cuda::Api& api() { return api_under_test(); }

}  // namespace

TEST_CASE("device communicators: a graph of calls, replayed a hundred times") {
  const int world = GENERATE(2, 4);
  on_ranks(
      world,
      [&](Communicator& comm) {
        const DeviceStream stream(comm.device());
        auto* raw = static_cast<cudaStream_t>(stream.get());
        const std::size_t count = 500;
        DeviceArray<std::int32_t> data(comm.device(), count),
            all(comm.device(), count * static_cast<std::size_t>(world));
        DeviceArray<std::int32_t> out(comm.device(), ramp(comm.rank(), 40)), in(comm.device(), 40);
        const int next = (comm.rank() + 1) % world, previous = (comm.rank() + world - 1) % world;
        must(api().SetDevice(comm.device().index));
        Graph graph(raw, [&] {
          comm.all_reduce(data.span(), ReduceOp::sum, stream.get());
          comm.all_gather(data.span(), all.span(), stream.get());
          auto group = comm.group();
          group.send(out.span(), next, stream.get());
          group.recv(in.span(), previous, stream.get());
          group.end();
        });
        for (int round = 0; round < 100; ++round) {
          data.copy_from(ramp(comm.rank() + round, count));
          in.fill(0);
          graph.launch();
          comm.synchronize(stream.get());
          const auto sum = data.to_host();
          for (std::size_t i = 0; i < count; ++i) {
            const auto expected = static_cast<std::int32_t>(i) * world + world * (world - 1) / 2 + world * round;
            expect(sum[i] == expected, "wrong sum in round " + std::to_string(round));
          }
          expect(in.to_host() == ramp(previous, 40), "wrong message in round " + std::to_string(round));
          if (round % 10 == 3) comm.barrier(stream.get());  // between replays
        }
      },
      on_sim());
}

// Everything that is pushed, in one launch where one kernel runs it, between calls that go other ways.
TEST_CASE("device communicators: a graph of short calls, replayed a hundred times") {
  const int world = GENERATE(1, 2, 4);
  on_ranks(
      world,
      [&](Communicator& comm) {
        const DeviceStream stream(comm.device());
        const auto ranks = static_cast<std::size_t>(world);
        const std::size_t count = 60;
        DeviceArray<float> data(comm.device(), count), all(comm.device(), ranks * count), part(comm.device(), count),
            shared(comm.device(), 3);
        must(api().SetDevice(comm.device().index));
        Graph graph(static_cast<cudaStream_t>(stream.get()), [&] {
          auto group = comm.group();
          group.all_gather(data.span(), all.span(), stream.get());
          group.broadcast(shared.span(), world - 1, stream.get());
          group.end();
          comm.all_reduce(data.span(), ReduceOp::max, stream.get());
          comm.reduce_scatter(all.span(), part.span(), ReduceOp::sum, stream.get());
          comm.all_reduce(part.span(), ReduceOp::sum, stream.get());
        });
        for (int round = 0; round < 100; ++round) {
          const auto own = [&](int rank) { return static_cast<float>(rank + round); };
          data.copy_from(std::vector<float>(count, own(comm.rank())));
          shared.copy_from(std::vector<float>(3, own(comm.rank())));
          graph.launch();
          if (round % 10 == 3) comm.all_reduce(shared.span(), ReduceOp::max, stream.get());  // between replays
          comm.synchronize(stream.get());
          expect(data.to_host() == std::vector<float>(count, own(world - 1)), "the largest");
          expect(shared.to_host() == std::vector<float>(3, own(world - 1)), "the last rank's");
          float sum = 0;
          for (int rank = 0; rank < world; ++rank) sum += static_cast<float>(world) * own(rank);
          expect(part.to_host() == std::vector<float>(count, sum), "the sum of sums in round " + std::to_string(round));
        }
      },
      on_sim());
}

TEST_CASE("device communicators: one that a live graph holds goes, and leaves its memory to the graph") {
  on_ranks(
      2,
      [](Communicator& comm) {
        const DeviceStream stream(comm.device());
        DeviceArray<std::int32_t> data(comm.device(), 100);
        must(api().SetDevice(comm.device().index));
        Graph graph(static_cast<cudaStream_t>(stream.get()),
                    [&] { comm.all_reduce(data.span(), ReduceOp::sum, stream.get()); });
        graph.launch();
        comm.synchronize(stream.get());
        { const Communicator gone = std::move(comm); }
        graph.launch();  // ends at once, and touches nothing that was freed
        stream.synchronize();
      },
      on_sim());
}

TEST_CASE("device communicators: calls on two branches of a capture run one after the other") {
  on_ranks(
      2,
      [](Communicator& comm) {
        constexpr std::size_t kCount = 3000;
        const DeviceStream main(comm.device()), branch(comm.device());
        std::vector<DeviceArray<std::int32_t>> data;
        for (int i = 0; i < 6; ++i) data.emplace_back(comm.device(), kCount);
        must(api().SetDevice(comm.device().index));
        const auto forked = comm::device::make_event(api(), comm.device().index);
        const auto joined = comm::device::make_event(api(), comm.device().index);
        const auto follow = [](const DeviceStream& from, const comm::device::Event& event, const DeviceStream& to) {
          must(api().EventRecord(event.get(), static_cast<cudaStream_t>(from.get())));
          must(api().StreamWaitEvent(static_cast<cudaStream_t>(to.get()), event.get(), 0));
        };
        Graph graph(static_cast<cudaStream_t>(main.get()), [&] {
          follow(main, forked, branch);
          for (std::size_t i = 0; i < data.size(); ++i)
            comm.all_reduce(data[i].span(), ReduceOp::sum, i % 2 == 0 ? main.get() : branch.get());
          follow(branch, joined, main);
        });
        for (int round = 0; round < 10; ++round) {
          for (auto& each : data) each.copy_from(ramp(comm.rank(), kCount));
          graph.launch();
          comm.synchronize(main.get());
          for (const auto& each : data) expect_sum_of_ramps(each.to_host(), 2);
        }
      },
      on_sim());
}

TEST_CASE("device communicators: a replay and a call that runs beside it are told apart, by name") {
  if (kUnderThreadSanitizer) {
    WARN("skipped: two launches at once are a data race, and reported as one");
    return;
  }
  const std::string kernel = GENERATE("simple", "window", "push");
  const Setting protocol("RONDO_PROTOCOL", kernel);
  std::atomic<bool> failed{false};
  const auto errors = run_ranks(2, on_sim(), [&](Communicator& comm) {
    const DeviceStream replayed(comm.device()), other(comm.device());
    must(api().SetDevice(comm.device().index));
    Graph graph(static_cast<cudaStream_t>(replayed.get()), [&] { comm.barrier(replayed.get()); });
    if (comm.rank() == 0) {
      graph.launch();  // and waits for rank 1
      comm.barrier(other.get());
    } else {
      await(failed);
    }
    const auto error = thrown_by([&] { comm.synchronize(other.get()); });
    failed = true;
    if (error) std::rethrow_exception(error);
    comm.check();
  });
  for (const auto& error : errors) {
    CHECK(code_of(error) == ErrorCode::invalid_argument);
    CHECK(sentence_of(error).find("rank 0: two launches of this communicator ran at the same time") !=
          std::string::npos);
  }
}
