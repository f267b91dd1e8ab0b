// SPDX-License-Identifier: Apache-2.0
// Collectives of devices in two levels: which calls go so, that they do what others do, and what is said when they
// cannot.
#include "comm/device/levels/level_plan.hpp"
#include "tests/comm/device/calls.hpp"
#include "tests/comm/device/graph.hpp"
#include "tests/comm/device/nodes.hpp"
#include "tests/support/await_failure.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;
using comm::device::LevelShape;
using Clock = std::chrono::steady_clock;

namespace {

// Which node each rank is on: in order, taking turns, of different sizes.
const std::vector<std::vector<int>> kNested{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {1, 0, 0, 0, 0}};
constexpr std::size_t kCounts[] = {0, 1, 3, 700, 6001, 40'003};
constexpr DataType kTypes[] = {DataType::i8,  DataType::u8,  DataType::i32,    DataType::u32,
                               DataType::i64, DataType::u64, DataType::f16,    DataType::bf16,
                               DataType::f32, DataType::f64, DataType::f8e4m3, DataType::f8e5m2};
constexpr Collective kLevelled[] = {Collective::all_reduce, Collective::reduce,         Collective::broadcast,
                                    Collective::all_gather, Collective::reduce_scatter, Collective::barrier};
const ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::max, ReduceOp::premul_sum(2.0)};

LevelShape shape_of_nodes(const std::vector<int>& nodes, int rank) {
  LevelShape shape{.nodes = {}, .scratch_bytes = 1000};
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    const auto node = static_cast<std::size_t>(nodes[r]);
    if (shape.nodes.ranks.size() <= node) shape.nodes.ranks.resize(node + 1);
    shape.nodes.node_of.push_back(nodes[r]);
    shape.nodes.index_of.push_back(static_cast<int>(shape.nodes.ranks[node].size()));
    shape.nodes.ranks[node].push_back(static_cast<int>(r));
  }
  shape.nodes.mine = nodes[static_cast<std::size_t>(rank)];
  shape.nodes.index = shape.nodes.index_of[static_cast<std::size_t>(rank)];
  shape.nodes.least = shape.nodes.most = static_cast<int>(shape.nodes.ranks[0].size());
  for (const auto& ranks : shape.nodes.ranks) {
    shape.nodes.least = std::min(shape.nodes.least, static_cast<int>(ranks.size()));
    shape.nodes.most = std::max(shape.nodes.most, static_cast<int>(ranks.size()));
  }
  return shape;
}

std::string why_not(const std::vector<int>& nodes, const Call& call, Determinism determinism = {},
                    std::string_view wanted = {}) {
  return std::string(comm::device::why_not_levels(call, shape_of_nodes(nodes, 0), determinism, wanted));
}

constexpr auto kDeterministic = Determinism::deterministic;

void expect_way(const Communicator& comm, std::string_view way) {
  expect(last_algorithm(comm) == way, "it took " + last_algorithm(comm));
}

}  // namespace

TEST_CASE("levels: what does not go in two levels says why") {
  constexpr auto f32 = DataType::f32;
  const Call sum{.collective = Collective::all_reduce, .count = 100, .dtype = f32};
  const Call long_scatter{.collective = Collective::reduce_scatter, .count = 126, .dtype = f32};
  const Call average{.collective = Collective::all_reduce, .count = 100, .dtype = f32, .op = ReduceOp::average};
  Call halves = average, to_last{.collective = Collective::reduce, .count = 100, .root = 2};
  halves.dtype = DataType::f16;
  CHECK(why_not({0, 0, 1, 1}, sum).empty());
  CHECK(why_not({0, 0, 1, 1}, sum, kDeterministic, "two_level").empty());
  CHECK(why_not({0, 0, 1, 1}, sum, kDeterministic, "ring") == "RONDO_ALGORITHM");
  CHECK(contains(why_not({0, 0, 1, 1}, sum, Determinism::reproducible), "(a + b)"));
  CHECK(why_not({0, 0, 1, 1}, average).empty());
  CHECK(contains(why_not({0, 0, 0, 1}, average), "different sizes"));
  CHECK(contains(why_not({0, 0, 1, 1}, halves), "divided once"));
  CHECK(why_not({0, 0, 1, 1}, to_last).empty());
  CHECK(contains(why_not({0, 0, 0, 1}, to_last), "no rail"));
  CHECK(contains(why_not({0, 0, 1, 1}, long_scatter), "too long"));
  CHECK(contains(why_not({0, 1, 0, 1}, {.collective = Collective::reduce_scatter, .count = 1}), "no row"));
  CHECK(contains(why_not({0, 0, 1, 1}, {.collective = Collective::all_to_all, .count = 1}), "no row"));
}

TEST_CASE("levels: every collective, type and count does what it does on the CPU, with the same bits on all ranks") {
  const auto cases = PairwiseCases({static_cast<int>(std::size(kLevelled)), static_cast<int>(std::size(kTypes)),
                                    static_cast<int>(std::size(kCounts)), static_cast<int>(std::size(kOps)), 2, 2},
                                   rotating_seed())
                         .all();
  Options cpu;
  cpu.determinism = Determinism::reproducible;
  for (const auto& nodes : kNested) {
    const int world = static_cast<int>(nodes.size());
    std::vector<CallCase> calls;
    for (const auto& v : cases) {
      CallCase c{.collective = kLevelled[v[0]],
                 .dtype = kTypes[v[1]],
                 .op = kOps[v[3]],
                 .count = kCounts[v[2]],
                 .root = v[2] % world,
                 .in_place = v[4] != 0 && may_be_in_place(kLevelled[v[0]]),
                 .misalignment = static_cast<std::size_t>(v[5])};
      if (!is_supported(c.dtype, c.op)) c.op = ReduceOp::sum;
      if (c.op == ReduceOp::average && world == 5) c.op = ReduceOp::sum;  // fifths are rounded
      calls.push_back(c);
    }
    std::vector<std::vector<Bytes>> got(calls.size(), std::vector<Bytes>(nodes.size()));
    on_nodes(nodes, [&](Communicator& comm) {
      for (std::size_t i = 0; i < calls.size(); ++i) {
        got[i][static_cast<std::size_t>(comm.rank())] = after_call(comm, calls[i]);
      }
    });
    for (std::size_t i = 0; i < calls.size(); ++i) {
      INFO(name_of(calls[i].collective) << " of " << calls[i].count << " " << name_of(calls[i].dtype) << ", "
                                        << name_of(calls[i].op.kind()) << ", root " << calls[i].root << ", " << world
                                        << " ranks, in place " << calls[i].in_place);
      CHECK(got[i] == run_case(world, cpu, calls[i]));
    }
  }
}

TEST_CASE("levels: sums that are rounded have the same bits on all ranks, and again") {
  for (const auto& nodes : kNested) {
    const CallCase c{.collective = Collective::all_reduce, .count = 9973, .exact = false};
    std::vector<Bytes> sums[2] = {std::vector<Bytes>(nodes.size()), std::vector<Bytes>(nodes.size())};
    for (auto& sum : sums) {
      on_nodes(nodes, [&](Communicator& comm) {
        const Arena arena(c, comm.rank(), comm.world_size());
        DeviceMemory memory(comm.device(), arena.bytes().size());
        memory.copy_from(arena.bytes().data(), arena.bytes().size());
        const Call call = arena.call(static_cast<std::byte*>(memory.data()));
        comm.submit(call);
        comm.synchronize();
        expect_way(comm, "two_level");
        expect(contains(comm.flight_record(), "\"kernel\": \"window"), "the record names kernels");
        Bytes& own = sum[static_cast<std::size_t>(comm.rank())];
        own.resize(9973 * sizeof(float));
        memory.copy_to(
            own.data(), own.size(),
            static_cast<std::size_t>(static_cast<std::byte*>(call.recv) - static_cast<std::byte*>(memory.data())));
      });
    }
    CHECK(sums[0] == sums[1]);
    for (const Bytes& sum : sums[0]) CHECK(sum == sums[0][0]);
  }
}

TEST_CASE("levels: windows and other memory, eager and in graphs, on streams in turn") {
  on_nodes({0, 0, 1, 1}, [](Communicator& comm) {
    const std::size_t count = 8001;
    const DeviceStream one(comm.device()), other(comm.device());
    Window<std::int32_t> window = comm.allocate<std::int32_t>(count);
    DeviceArray<std::int32_t> plain(comm.device(), ramp(comm.rank(), count));
    comm.all_reduce(plain.data(), window.data(), count, DataType::i32, ReduceOp::sum, one.get());
    comm.all_reduce(window.span(), ReduceOp::sum, other.get());
    comm.all_reduce(window.data(), plain.data(), count, DataType::i32, ReduceOp::sum, one.get());
    comm.synchronize(one.get());
    expect_way(comm, "two_level");
    expect_sum_of_ramps(plain.to_host(), 4, 16);
    must(api_under_test().SetDevice(comm.device().index));
    DeviceArray<std::int32_t> again(comm.device(), count);
    Graph graph(static_cast<cudaStream_t>(one.get()),
                [&] { comm.all_reduce(again.data(), window.data(), count, DataType::i32, ReduceOp::sum, one.get()); });
    for (int round = 0; round < 20; ++round) {
      again.copy_from(ramp(comm.rank() + round, count));
      graph.launch();
      comm.synchronize(one.get());
    }
    copy_on(comm.device(), one.get(), plain.data(), window.data(), count * sizeof(std::int32_t));
    comm.synchronize(one.get());
    auto sums = plain.to_host();
    for (auto& sum : sums) sum -= 4 * 19;
    expect_sum_of_ramps(sums, 4);
  });
}

TEST_CASE("levels: a mismatch in a node or between nodes names both ranks and the call") {
  const int culprit = GENERATE(0, 1, 3);
  const std::size_t count = GENERATE(as<std::size_t>(), 100, 20'000);
  const bool nothing = GENERATE(false, true);
  const auto begun = Clock::now();
  const auto errors = run_on_nodes({0, 0, 0, 1}, on_sim(), [&](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 80'000);
    comm.barrier();
    const std::size_t own = comm.rank() != culprit ? count : nothing ? 0 : count - 1;
    comm.all_reduce(memory.data(), memory.data(), own, DataType::f32, ReduceOp::sum);
    comm.barrier();
    comm.synchronize();
  });
  CHECK(Clock::now() - begun < 20s);
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(contains(sentence_of(error), fmt::format("rank {}", culprit)));
    CHECK(contains(sentence_of(error), "count of all_reduce #2"));
  }
}

TEST_CASE("levels: who is missing when the deadline passes is named by its own number") {
  const int missing = GENERATE(1, 2, 3);
  const auto errors = run_on_nodes({0, 0, 1, 1}, on_sim(500ms), [&](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 40'000);
    comm.barrier();
    comm.synchronize();
    if (comm.rank() == missing) await_failure(comm);
    comm.all_reduce(memory.data(), memory.data(), 10'000, DataType::f32, ReduceOp::sum);
    comm.synchronize();
  });
  for (const auto& error : errors) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::timeout);
    CHECK(culprit_of(error) == missing);
    CHECK(contains(sentence_of(error), " s in all_reduce #2 of 10000 f32, sum for rank"));
    CHECK(contains(sentence_of(error), "two_level"));
  }
}

TEST_CASE("levels: who leaves is named by those that need it, and abort() ends what runs") {
  const auto errors = run_on_nodes({0, 0, 1, 1}, on_sim(), [](Communicator& comm) {
    if (comm.rank() == 3) return;
    comm.barrier();
    comm.synchronize();
  });
  CHECK(!errors[3]);
  for (std::size_t r = 0; r < 3; ++r) {
    INFO(sentence_of(errors[r]));
    CHECK(contains(sentence_of(errors[r]), "rank 3"));
  }
  const auto aborted = run_on_nodes({0, 0, 1, 1}, on_sim(), [](Communicator& comm) {
    const DeviceMemory memory(comm.device(), 400);
    if (comm.rank() != 3) comm.all_reduce(memory.data(), memory.data(), 100, DataType::f32, ReduceOp::sum);
    if (comm.rank() == 0) comm.abort();
    comm.synchronize();
    const auto until = Clock::now() + 20s;
    while (Clock::now() < until) {
      comm.check();
      std::this_thread::yield();
    }
  });
  for (const auto& error : aborted) {
    INFO(sentence_of(error));
    CHECK(code_of(error) == ErrorCode::aborted);
  }
}

TEST_CASE("levels: too little memory for them leaves the links between all ranks") {
  const Setting setting("RONDO_DEVICE_BYTES", "65536");
  on_nodes({0, 0, 1}, [](Communicator& comm) {
    DeviceArray<std::int32_t> data(comm.device(), ramp(comm.rank(), 1000));
    comm.all_reduce(data.span(), ReduceOp::sum);
    comm.synchronize();
    expect(last_algorithm(comm) != "two_level", "there is memory for levels");
    expect_sum_of_ramps(data.to_host(), 3);
  });
}
