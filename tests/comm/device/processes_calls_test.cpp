// SPDX-License-Identifier: Apache-2.0
// Communicators on simulated devices whose ranks are processes: calls, graphs, mismatches and killed ranks, with
// device memory shared by IPC handles, with host memory where there is no access, and over proxies between nodes.
#include <fmt/format.h>
#include <signal.h>

#include "kernels/soft/settings.hpp"
#include "tests/comm/device/calls.hpp"
#include "tests/comm/device/graph.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

struct Layout {
  const char* name;
  int ranks, devices;
  bool peer_access;
  int ranks_per_node;
  const char* protocol = nullptr;  // that is asked for
};
constexpr Layout kLayouts[] = {{"one device", 4, 1, true, 4},
                               {"two devices", 4, 2, true, 4},
                               {"two devices without access", 4, 2, false, 4},
                               {"two nodes", 4, 2, true, 2},
                               {"two nodes without access", 4, 2, false, 2},
                               {"one device over kernels", 4, 1, true, 4, "window"}};

soft::Settings machine_of(const Layout& layout) {
  soft::Settings settings;
  settings.devices = layout.devices;
  settings.peer_access = layout.peer_access;
  settings.mps = layout.devices == 1 ? 0 : 1;  // then calls take the ways of processes that take turns
  settings.strict = true;                      // memory freed while a peer maps it ends the process
  return settings;
}

Communicator join(const Layout& layout, int rank, const std::shared_ptr<Store>& store, const char* name,
                  Options options) {
  options.node = fmt::format("node{}", rank / layout.ranks_per_node);
  return join_forked(rank, layout.ranks, store, options, name);
}

template <class Body>
std::vector<Ended> run_layout(const Layout& layout, Body body) {
  return fork_ranks(layout.ranks, 30s, [&](int rank, const std::shared_ptr<Store>& store) {
    expect(soft::configure(machine_of(layout)), "the machine is fresh");
    if (layout.protocol != nullptr) ::setenv("RONDO_PROTOCOL", layout.protocol, 1);
    Options options;
    options.device = Device::sim(rank % layout.devices);
    options.timeout = 20s;
    body(rank, store, options);
  });
}

}  // namespace

TEST_CASE("processes on devices: every collective does what it does on the CPU") {
  const auto& layout = kLayouts[GENERATE(0, 1, 2, 3, 4, 5)];
  INFO(layout.name);
  check_ended_well(run_layout(layout, [&](int rank, const std::shared_ptr<Store>& store, const Options& options) {
    Options cpu;
    cpu.determinism = Determinism::reproducible;
    Communicator host = join(layout, rank, store, "host", cpu);
    Communicator comm = join(layout, rank, store, "devices", options);
    int root = 0;
    for (const Collective collective : kCollectives) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{700}, std::size_t{20'001}}) {
        const CallCase c{.collective = collective,
                         .dtype = count == 700 ? DataType::i32 : DataType::f32,
                         .count = count,
                         .root = root++ % layout.ranks};
        expect(after_call(comm, c) == after_call(host, c), fmt::format("{} of {}", name_of(collective), count));
        const bool takes_turns = layout.devices == 1 && layout.protocol == nullptr;
        const bool by_host = takes_turns && collective != Collective::all_to_all_v;
        expect((last_algorithm(comm) == "host") == by_host, "it took " + last_algorithm(comm));
        host.barrier();  // freeing the arena waits for the device's kernels, which wait for peers
      }
    }
  }));
}

TEST_CASE("processes on devices: allocated windows are used in place, and graphs of them are replayed") {
  const auto& layout = kLayouts[GENERATE(0, 1, 2, 3)];
  INFO(layout.name);
  check_ended_well(run_layout(layout, [&](int rank, const std::shared_ptr<Store>& store, const Options& options) {
    Communicator comm = join(layout, rank, store, "devices", options);
    const std::size_t count = 5000;
    Window<std::int32_t> window = comm.allocate<std::int32_t>(count);
    const DeviceStream stream(comm.device());
    must(cuda::soft_api().SetDevice(comm.device().index));
    Graph graph(static_cast<cudaStream_t>(stream.get()),
                [&] { comm.all_reduce(window.span(), ReduceOp::sum, stream.get()); });
    for (int round = 0; round < 100; ++round) {
      const auto mine = ramp(rank + round, count);
      const cuda::Api& api = cuda::soft_api();
      must(api.MemcpyAsync(window.data(), mine.data(), count * 4, cudaMemcpyHostToDevice,
                           static_cast<cudaStream_t>(stream.get())));
      graph.launch();
      std::vector<std::int32_t> sum(count);
      must(api.MemcpyAsync(sum.data(), window.data(), count * 4, cudaMemcpyDeviceToHost,
                           static_cast<cudaStream_t>(stream.get())));
      comm.synchronize(stream.get());
      for (std::size_t i = 0; i < count; ++i) {
        expect(sum[i] == static_cast<std::int32_t>(i) * 4 + 6 + 4 * round,
               fmt::format("element {} of round {}", i, round));
      }
    }
  }));
}

TEST_CASE("processes on devices: a killed rank is named by those that wait in a kernel") {
  const auto& layout = kLayouts[GENERATE(0, 1, 2, 3, 5)];
  const int victim = GENERATE(0, 3);
  CAPTURE(layout.name, victim);
  const auto ended = run_layout(layout, [&](int rank, const std::shared_ptr<Store>& store, const Options& options) {
    Communicator comm = join(layout, rank, store, "devices", options);
    DeviceArray<float> data(comm.device(), 3000);
    comm.all_reduce(data.span(), ReduceOp::sum);
    comm.synchronize();
    const auto meet = [&] { comm.all_gather_bytes({}); };  // then nobody is in the first any more
    if (rank == victim) {
      meet();
      ::raise(SIGKILL);
    }
    const auto error = thrown_by([&] {
      meet();  // which the victim may leave, and die, before the others have left it
      comm.all_reduce(data.span(), ReduceOp::sum);
      comm.synchronize();
    });
    expect(code_of(error) == ErrorCode::peer_lost, "it is lost: " + sentence_of(error));
    expect(sentence_of(error).starts_with(fmt::format("rank {} ", victim)), sentence_of(error));
  });
  for (int rank = 0; rank < layout.ranks; ++rank) {
    const Ended& end = ended[static_cast<std::size_t>(rank)];
    CAPTURE(rank);
    CHECK(end.signal == (rank == victim ? SIGKILL : 0));
    CHECK(end.failure == "");
    CHECK(end.seconds < 6);
  }
}

TEST_CASE("processes on devices: a mismatch is named on every rank") {
  const auto& layout = kLayouts[GENERATE(0, 2, 3, 5)];
  INFO(layout.name);
  check_ended_well(run_layout(layout, [&](int rank, const std::shared_ptr<Store>& store, const Options& options) {
    Communicator comm = join(layout, rank, store, "devices", options);
    DeviceArray<float> data(comm.device(), 3000);
    const auto error = thrown_by([&] {
      comm.all_reduce(data.data(), data.data(), rank == 2 ? 2999 : 3000, DataType::f32, ReduceOp::sum);
      comm.synchronize();
    });
    expect(code_of(error) == ErrorCode::mismatch, "a mismatch: " + sentence_of(error));
    expect(sentence_of(error).find("rank 2") != std::string::npos, sentence_of(error));
    expect(sentence_of(error).find("count") != std::string::npos, sentence_of(error));
  }));
}

TEST_CASE("processes on devices: too many for a device are refused at once, on every rank") {
  const auto ended = fork_ranks(4, 20s, [&](int rank, const std::shared_ptr<Store>& store) {
    soft::Settings machine = machine_of(kLayouts[0]);
    machine.multiprocessors = machine.resident_blocks = 3;
    expect(soft::configure(machine), "the machine is fresh");
    Options options;
    options.device = Device::sim(0);
    const auto error = thrown_by([&] { join(kLayouts[0], rank, store, "devices", options); });
    expect(code_of(error) == ErrorCode::unsupported, "refused: " + sentence_of(error));
    expect(sentence_of(error).find("runs 3 blocks at a time") != std::string::npos, sentence_of(error));
  });
  check_ended_well(ended);
  for (const Ended& end : ended) CHECK(end.seconds < 1);
}
