// SPDX-License-Identifier: Apache-2.0
// More communicators on one device than it has blocks for: their launches take turns, and no kernel ever waits for
// blocks that another one holds.
#include <fmt/format.h>

#include <map>

#include "comm/call/communicator_impl.hpp"
#include "comm/device/setup/simulation.hpp"
#include "kernels/soft/settings.hpp"
#include "tests/comm/device/graph.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

// One device that runs so many blocks at a time.
class OneDevice {
 public:
  explicit OneDevice(int blocks) : blocks_("RONDO_SIM_BLOCKS", std::to_string(blocks)) {
    const auto until = std::chrono::steady_clock::now() + 30s;  // threads of destroyed streams may be about to end
    do {
      comm::device::configure_simulation();
    } while (soft::settings().resident_blocks != blocks && std::chrono::steady_clock::now() < until);
    REQUIRE(soft::settings().resident_blocks == blocks);
    REQUIRE(soft::settings().devices == 1);
  }

 private:
  const Setting devices_{"RONDO_SIM_DEVICES", "1"};
  const Setting blocks_;
};

bool takes_turns(Communicator& comm) { return detail::impl_of(comm).device()->takes_turns(); }

struct Member {
  Communicator comm;
  DeviceArray<std::int32_t> data;
  std::int32_t expected = 1;
};
void add(std::vector<std::unique_ptr<Member>>& members, Communicator comm) {
  members.push_back(std::make_unique<Member>(Member{Communicator(), {}, 1}));
  members.back()->comm = std::move(comm);
  members.back()->data = DeviceArray<std::int32_t>(members.back()->comm.device(), std::vector<std::int32_t>(200, 1));
}

// The sum of so many equal values, again and again, each communicator on one stream or another.
void call_all(std::vector<std::unique_ptr<Member>>& members, int rounds) {
  std::vector<DeviceStream> streams;
  for (int i = 0; i < 3; ++i) streams.emplace_back(members.front()->comm.device());
  std::size_t call = 0;
  for (int round = 0; round < rounds; ++round) {
    for (auto& member : members) {
      member->comm.all_reduce(member->data.span(), ReduceOp::sum, streams[call++ % streams.size()].get());
      member->expected *= member->comm.world_size();
    }
  }
  for (auto& member : members) {
    for (const DeviceStream& stream : streams) member->comm.synchronize(stream.get());
  }
  for (auto& member : members) {
    const auto result = member->data.to_host();
    expect(result == std::vector<std::int32_t>(200, member->expected),
           fmt::format("it is {}, not {}", result[0], member->expected));
  }
}

}  // namespace

TEST_CASE("64 communicators on one device, each of eight ranks a thread that calls all its own") {
  const OneDevice device(20);
  constexpr int kRanks = 8;
  // How a split colours ranks, and how many communicators that makes.
  const std::vector<std::pair<int (*)(int), int>> kSplits = {{[](int r) { return r / 4; }, 2},
                                                             {[](int r) { return r % 2; }, 2},
                                                             {[](int r) { return r / 2; }, 4},
                                                             {[](int r) { return r % 4; }, 4},
                                                             {[](int) { return 0; }, 1}};
  std::atomic<int> made{0}, in_turn{0};
  const std::uint64_t short_before = soft::kernels_short_of_blocks();
  on_ranks(
      kRanks,
      [&](Communicator& world) {
        std::vector<std::unique_ptr<Member>> members;
        int communicators = 1;
        for (std::size_t i = 0; communicators < 64; ++i) {
          const auto& [color, count] = kSplits[i % kSplits.size()];
          const bool all = communicators + count <= 64;  // else one of all ranks, which there is always room for
          add(members, world.split(all ? color(world.rank()) : 0, -world.rank()));
          communicators += all ? count : 1;
        }
        add(members, std::move(world));
        for (auto& member : members) in_turn += takes_turns(member->comm) ? 1 : 0;
        made = communicators;
        call_all(members, 2);
      },
      on_sim(200s));
  CHECK(made == 64);
  CHECK(in_turn > 0);
  CHECK(soft::kernels_short_of_blocks() == short_before);
}

TEST_CASE("a framework's groups on a device of 132 blocks have blocks of their own") {
  const OneDevice device(132);
  const std::uint64_t short_before = soft::kernels_short_of_blocks();
  on_ranks(
      4,
      [&](Communicator& world) {
        std::vector<std::unique_ptr<Member>> members;
        for (const int color : {world.rank() % 2, world.rank() / 2, 0, world.rank()})
          add(members, world.split(color, world.rank()));
        add(members, std::move(world));
        for (auto& member : members) expect(!takes_turns(member->comm), "it takes turns");
        call_all(members, 8);
      },
      on_sim(200s));
  CHECK(soft::kernels_short_of_blocks() == short_before);
}

TEST_CASE("groups of a split that come into being at the same time find blocks, or take turns") {
  const OneDevice device(9);
  on_ranks(
      4,
      [](Communicator& world) {
        for (int round = 0; round < 6; ++round) {
          std::vector<std::unique_ptr<Member>> members;
          for (int i = 0; i < 3; ++i) add(members, world.split(world.rank() / 2, world.rank()));
          call_all(members, 2);
        }
      },
      on_sim(200s));
}

TEST_CASE("one that outlives the communicator that lent it blocks goes on") {
  const OneDevice device(2);
  on_ranks(
      2,
      [](Communicator& world) {
        std::vector<std::unique_ptr<Member>> members;
        add(members, world.split(0, world.rank()));
        expect(takes_turns(world) && takes_turns(members.back()->comm), "somebody has blocks of its own");
        call_all(members, 1);
        { const Communicator gone = std::move(world); }
        call_all(members, 2);
        expect(!takes_turns(members.back()->comm), "it still takes turns");
        const DeviceStream stream(members.back()->comm.device());
        Graph graph(static_cast<cudaStream_t>(stream.get()), [&] { members.back()->comm.barrier(stream.get()); });
        graph.launch();
        members.back()->comm.synchronize(stream.get());
      },
      on_sim(200s));
}

TEST_CASE("calls that take turns are refused to a graph, and a graph's blocks are not lent") {
  const OneDevice device(2);
  on_ranks(
      2,
      [](Communicator& world) {
        const DeviceStream stream(world.device());
        auto* raw = static_cast<cudaStream_t>(stream.get());
        {
          Graph graph(raw, [&] { world.barrier(stream.get()); });
          const auto refused = thrown_by([&] { world.split(0, world.rank()); });
          expect(code_of(refused) == ErrorCode::unsupported, "a graph's blocks were lent");
          expect(sentence_of(refused).find("or its graphs, first") != std::string::npos, sentence_of(refused));
          graph.launch();
          world.synchronize(stream.get());
        }
        auto other = world.split(0, world.rank());
        const cuda::Api& api = api_under_test();
        must(api.StreamBeginCapture(raw, cudaStreamCaptureModeThreadLocal));
        for (Communicator* comm : {&world, &other}) {
          const auto refused = thrown_by([&] { comm->barrier(stream.get()); });
          expect(code_of(refused) == ErrorCode::unsupported, "it was captured");
          expect(sentence_of(refused).find("take turns with those of others") != std::string::npos,
                 sentence_of(refused));
        }
        cudaGraph_t graph = nullptr;
        must(api.StreamEndCapture(raw, &graph));
        must(api.GraphDestroy(graph));
        world.barrier();
        other.barrier();
        world.synchronize();
        other.synchronize();
      },
      on_sim(200s));
}
