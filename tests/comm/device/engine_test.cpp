// SPDX-License-Identifier: Apache-2.0
// Communicators on simulated devices beyond the single call: streams, groups, asynchronous calls, windows, children.
#include <fmt/format.h>

#include <atomic>
#include <fstream>

#include "tests/comm/device/worlds.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

// The simulated runtime, with its launches counted.
std::atomic<int> launches{0};
const cuda::Api& counting_api() {
  static const cuda::Api api = [] {
    cuda::Api copy = api_under_test();
    copy.LaunchKernelExC = [](const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
      ++launches;
      return api_under_test().LaunchKernelExC(config, kernel, arguments);
    };
    return copy;
  }();
  return api;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
constexpr long kMayGrowKib = 300'000;  // sanitizers keep what was freed for a while
#else
constexpr long kMayGrowKib = 2'000;
#endif

long resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  }
  return 0;
}

}  // namespace

TEST_CASE("device communicators: calls on a stream, in order, without a word to the host") {
  on_ranks(
      4,
      [](Communicator& comm) {
        expect(comm.device().kind == device_under_test().kind && comm.device().index >= 0, "no device was chosen");
        const DeviceStream stream(comm.device());
        DeviceArray<std::int32_t> data(comm.device(), ramp(comm.rank(), 1000));
        comm.all_reduce(data.span(), ReduceOp::sum, stream.get());
        comm.broadcast(data.span(), 2, stream.get());
        comm.barrier(stream.get());
        comm.synchronize(stream.get());
        expect_sum_of_ramps(data.to_host(), 4);
        comm.check();
      },
      on_sim());
}

TEST_CASE("device communicators: blocks of nothing over links are a mere meeting, whoever is the root") {
  const Setting protocol("RONDO_PROTOCOL", "simple");
  const std::vector<std::size_t> nothing(3, 0);
  on_ranks(
      3,
      [&](Communicator& comm) {
        DeviceArray<std::int32_t> data(comm.device(), ramp(comm.rank(), 12));
        const std::span<std::int32_t> empty = data.span().first(0);
        for (int root = 0; root < comm.world_size(); ++root) {
          comm.scatter_v<std::int32_t>(empty, empty, nothing, root);
          comm.gather_v<std::int32_t>(empty, empty, nothing, root);
          comm.all_gather_v<std::int32_t>(empty, empty, nothing);
          comm.all_to_all_v<std::int32_t>(empty, nothing, empty, nothing);
        }
        comm.all_reduce(data.span(), ReduceOp::max);
        comm.synchronize();
        expect(data.to_host() == ramp(2, 12), "wrong maximum");
      },
      on_sim());
}

TEST_CASE("device communicators: calls on several streams run one after the other") {
  on_ranks(
      2,
      [](Communicator& comm) {
        const DeviceStream first(comm.device()), second(comm.device());
        DeviceArray<std::int32_t> data(comm.device(), ramp(comm.rank(), 5000));
        for (int i = 0; i < 6; ++i)
          comm.all_reduce(data.span(), ReduceOp::max, i % 2 == 0 ? first.get() : second.get());
        comm.synchronize(second.get());
        comm.synchronize(first.get());
        expect(data.to_host() == ramp(1, 5000), "wrong maximum");
      },
      on_sim());
}

TEST_CASE("device communicators: asynchronous calls") {
  on_ranks(
      3,
      [](Communicator& comm) {
        std::vector<DeviceArray<std::int32_t>> data;
        std::vector<Work> works;
        for (int i = 0; i < 5; ++i) data.emplace_back(comm.device(), ramp(comm.rank(), 300));
        for (auto& d : data) works.push_back(comm.async().all_reduce(d.span(), ReduceOp::sum));
        expect(works.back().wait_for(30s), "it took longer than 30 s");
        for (Work& work : works) {
          expect(work.done() && !work.error(), "an earlier call is not done");
          work.wait();
        }
        for (const auto& d : data) expect_sum_of_ramps(d.to_host(), 3);
        Work last = comm.async().barrier();
        Communicator(std::move(comm));
        last.wait();  // longer than the communicator
      },
      on_sim());
}

TEST_CASE("device communicators: a group is as few launches as kernels are needed") {
  launches = 0;
  const int world = 3;
  rethrow(in_threads(comm::make_local(world, on_sim(), &counting_api()), [&](Communicator& comm) {
    const std::size_t count = 2000;
    std::vector<DeviceArray<std::int32_t>> sums;
    for (int i = 0; i < 4; ++i) sums.emplace_back(comm.device(), ramp(comm.rank(), count));
    auto group = comm.group();
    for (auto& sum : sums) group.all_reduce(sum.span(), ReduceOp::sum);
    group.end();
    comm.synchronize();
    for (auto& sum : sums) expect_sum_of_ramps(sum.to_host(), world);
  }));
  CHECK(launches == world);
}

TEST_CASE("device communicators: messages of a group cannot block one another") {
  const int world = GENERATE(2, 4);
  const int each = GENERATE(1, 12);  // 2 * 4 * 12 are more than one launch holds
  on_ranks(
      world,
      [&](Communicator& comm) {
        const std::size_t count = 20'000;  // more than the slots hold
        std::vector<DeviceArray<std::int32_t>> out, in;
        for (int i = 0; i < each * world; ++i) {
          out.emplace_back(comm.device(), ramp(comm.rank() * 1000 + i, count));
          in.emplace_back(comm.device(), count);
        }
        auto group = comm.group();
        for (int i = 0; i < each * world; ++i) group.send(out[static_cast<std::size_t>(i)].span(), i % world);
        for (int i = 0; i < each * world; ++i) group.recv(in[static_cast<std::size_t>(i)].span(), i % world);
        group.end();
        comm.synchronize();
        for (int i = 0; i < each * world; ++i) {
          // The n-th message from a peer is the n-th that it sent to this rank.
          const int sent = i / world * world + comm.rank();
          expect(in[static_cast<std::size_t>(i)].to_host() == ramp(i % world * 1000 + sent, count), "wrong message");
        }
      },
      on_sim());
}

TEST_CASE("device communicators: messages and collectives in one group") {
  on_ranks(
      3,
      [](Communicator& comm) {
        DeviceArray<std::int32_t> sum(comm.device(), ramp(comm.rank(), 700)), all(comm.device(), 300);
        DeviceArray<std::int32_t> out(comm.device(), ramp(comm.rank(), 100)), in(comm.device(), 100);
        const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
        auto group = comm.group();
        group.all_reduce(sum.span(), ReduceOp::sum);
        group.send(out.span(), next);
        group.all_gather(out.span(), all.span());
        group.recv(in.span(), previous);
        group.end();
        comm.synchronize();
        expect_sum_of_ramps(sum.to_host(), 3);
        expect(in.to_host() == ramp(previous, 100), "wrong message");
        const auto gathered = all.to_host();
        for (std::size_t i = 0; i < 300; ++i) {
          expect(gathered[i] == static_cast<std::int32_t>(i / 100 + i % 100), "wrong block");
        }
      },
      on_sim());
}

// Longer than what the slots hold: read where they lie, so the next call may write there only when they are taken.
TEST_CASE("device communicators: long messages out of windows") {
  constexpr std::size_t kCount = 300'000;
  on_ranks(
      3,
      [](Communicator& comm) {
        const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
        DeviceArray<std::int32_t> out(comm.device(), ramp(comm.rank(), kCount)), in(comm.device(), kCount);
        const Registration registration = comm.register_memory(out.data(), out.size() * sizeof(std::int32_t));
        auto group = comm.group();
        group.send(out.span().subspan(1), next);
        group.recv(in.span().subspan(1), previous);
        group.end();
        comm.all_reduce(out.span(), ReduceOp::sum);
        comm.synchronize();
        const auto received = in.to_host(), expected = ramp(previous, kCount);
        expect(std::equal(received.begin() + 1, received.end(), expected.begin() + 1), "wrong message");
        expect_sum_of_ramps(out.to_host(), 3);
      },
      on_sim());
}

TEST_CASE("device communicators: windows and registered memory") {
  on_ranks(
      4,
      [](Communicator& comm) {
        auto window = comm.allocate<std::int32_t>(5000);
        DeviceArray<std::int32_t> own(comm.device(), ramp(comm.rank(), 5000));
        for (int round = 0; round < 3; ++round) {
          Registration registration = comm.register_memory(own.data(), own.size() * sizeof(std::int32_t));
          comm.all_reduce(std::span<const std::int32_t>(own.span()), window.span(), ReduceOp::sum);
          comm.all_reduce(window.span(), ReduceOp::max);
          comm.synchronize();
          DeviceArray<std::int32_t> copy(comm.device(), 5000);
          comm.all_reduce(std::span<const std::int32_t>(window.span()), copy.span(), ReduceOp::max);
          comm.synchronize();
          expect_sum_of_ramps(copy.to_host(), 4);
        }
      },
      on_sim());
}

TEST_CASE("device communicators: split and shrink stay on their devices") {
  on_ranks(
      4,
      [](Communicator& comm) {
        auto half = comm.split(comm.rank() % 2, comm.rank());
        expect(half.device().kind == comm.device().kind && half.device().index == comm.device().index,
               "the child is on another device");
        DeviceArray<std::int32_t> data(half.device(), ramp(half.rank(), 100));
        half.all_reduce(data.span(), ReduceOp::sum);
        half.synchronize();
        expect_sum_of_ramps(data.to_host(), 2);
        if (comm.rank() == 3) comm.abort();
        try {
          for (;;) {
            comm.barrier();
            comm.synchronize();
          }
        } catch (const Error&) {
        }
        auto next = comm.shrink();
        DeviceArray<std::int32_t> more(next.device(), ramp(next.rank(), 100));
        next.all_reduce(more.span(), ReduceOp::sum);
        next.synchronize();
        expect_sum_of_ramps(more.to_host(), 4);
      },
      on_sim());
}

TEST_CASE("device communicators: memory is freed while a peer's kernel waits for the rank that frees it") {
  constexpr std::size_t kBytes = 8 << 20;
  Options options = on_sim(20s);
  options.device = device_under_test(GENERATE(0, -1));  // of both, or one each where there are two
  int device = 0;
  const auto round = [&] {
    std::atomic<bool> waits{false};
    on_ranks(
        2,
        [&](Communicator& comm) {
          if (comm.rank() == 0) {
            Work work = comm.async().barrier();
            expect(!work.wait_for(50ms), "it did not wait for rank 1");
            waits = true;
          } else {
            await(waits);
            device = comm.device().index;
            const DeviceMemory freed(comm.device(), kBytes);
          }
          if (comm.rank() == 1) comm.barrier();
          comm.synchronize();
        },
        options);
    std::size_t free = 0, all = 0;
    REQUIRE(api_under_test().SetDevice(device) == cudaSuccess);
    REQUIRE(api_under_test().MemGetInfo(&free, &all) == cudaSuccess);
    return free;
  };
  const std::size_t before = round();
  CHECK(round() >= before);
}

TEST_CASE("device communicators: what they refuse") {
  on_ranks(
      2,
      [](Communicator& comm) {
        const auto refused = [&](const std::string& part, auto call) {
          try {
            call();
          } catch (const Error& error) {
            expect(error.error_code() == ErrorCode::invalid_argument, error.what());
            expect(std::string(error.what()).find(part) != std::string::npos, error.what());
            return;
          }
          throw std::runtime_error("it was not refused: " + part);
        };
        std::vector<float> host(10);
        DeviceArray<float> data(comm.device(), 10);
        refused("the send buffer is host memory", [&] { comm.all_reduce(host, ReduceOp::sum); });
        refused("the receive buffer is host memory",
                [&] { comm.all_reduce(std::span<const float>(data.span()), std::span(host), ReduceOp::sum); });
        refused("null", [&] { comm.all_reduce(nullptr, nullptr, 3, DataType::f32, ReduceOp::sum); });
        const DeviceStream stream(comm.device());
        refused("on one stream", [&] {
          auto group = comm.group();
          group.barrier(stream.get());
          group.barrier();
          group.end();
        });
        comm.all_reduce(data.span(), ReduceOp::sum);  // none of it hurt
        comm.synchronize();
      },
      on_sim());
}

TEST_CASE("device communicators: a thousand calls take no more memory") {
  on_ranks(
      2,
      [](Communicator& comm) {
        DeviceArray<float> data(comm.device(), 100);
        const auto calls = [&](int count) {
          for (int i = 0; i < count; ++i) {
            comm.all_reduce(data.span(), ReduceOp::max);
            if (i % 50 == 49) comm.synchronize();
          }
        };
        calls(100);
        const long before = resident_kib();
        calls(1000);
        const long grown = resident_kib() - before;
        expect(grown < kMayGrowKib, fmt::format("it grew by {} KiB", grown));
      },
      on_sim());
}

TEST_CASE("device communicators: several threads of a rank call one, on streams of their own, and give windows back") {
  constexpr int kThreads = 3, kCalls = 20;
  on_ranks(
      2,
      [](Communicator& comm) {
        std::vector<decltype(comm.allocate<std::int32_t>(100))> windows;
        for (int i = 0; i < kCalls; ++i) windows.push_back(comm.allocate<std::int32_t>(100));
        std::vector<std::exception_ptr> errors(kThreads + 1);
        std::vector<std::thread> threads;
        const auto run = [&](int thread, auto body) {
          threads.emplace_back([&errors, thread, body] { errors[static_cast<std::size_t>(thread)] = thrown_by(body); });
        };
        for (int t = 0; t < kThreads; ++t) {
          run(t, [&comm] {
            const DeviceStream stream(comm.device());
            DeviceArray<std::int32_t> data(comm.device(), std::vector<std::int32_t>(100, 1));
            for (int i = 0; i < kCalls; ++i) {  // equal values, whichever thread's calls meet
              comm.async().all_reduce(data.span(), ReduceOp::max, stream.get()).wait();
              comm.all_reduce(data.span(), ReduceOp::max, stream.get());
              comm.check();
            }
            comm.synchronize(stream.get());
            expect(data.to_host() == std::vector<std::int32_t>(100, 1), "wrong maximum");
          });
        }
        run(kThreads, [&windows] {
          while (!windows.empty()) windows.pop_back();
        });
        for (auto& thread : threads) thread.join();
        rethrow(errors);
        comm.barrier();
        comm.synchronize();
      },
      on_sim());
}
