// SPDX-License-Identifier: Apache-2.0
// Regions and windows of ranks that are processes: memory is exchanged by IPC handles, as on GPUs.
#include <fmt/format.h>
#include <signal.h>

#include <fstream>

#include "tests/comm/device/reachability.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::comm::device;
using namespace std::chrono_literals;
using test::expect;
using test::SimRank;

namespace {

constexpr auto kLimit = 20s;

soft::Settings strict_machine() {
  soft::Settings settings;
  settings.strict = true;  // memory freed while a peer maps it ends the process
  settings.mps = 0;
  return settings;
}

// body(comm) in a process per rank, each with a machine made by machine(rank).
template <class Machine, class Body>
std::vector<test::Ended> run_processes(int world_size, Machine machine, Body body) {
  return test::fork_ranks(world_size, kLimit, [&](int rank, const std::shared_ptr<Store>& store) {
    expect(soft::configure(machine(rank)), "the machine is fresh");
    Communicator comm = test::join_forked(rank, world_size, store);
    body(comm);
  });
}

template <class Machine, class Body>
void on_processes(int world_size, Machine machine, Body body) {
  test::check_ended_well(run_processes(world_size, machine, body));
}

std::size_t shared_memory_files() {  // that this process holds open
  std::size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    char target[256] = {};
    if (::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), target, sizeof target - 1) <= 0) continue;
    count += std::string_view(target).starts_with("/memfd:");
  }
  return count;
}

}  // namespace

TEST_CASE("processes map each other's regions and windows") {
  const int devices = GENERATE(1, 2);
  CAPTURE(devices);
  on_processes(
      4, [](int) { return strict_machine(); },
      [&](Communicator& comm) {
        const int device = comm.rank() % devices;
        SimRank rank(comm, device);
        for (int peer = 0; peer < 4; ++peer) {
          expect(rank.regions().route(peer) == (peer == comm.rank() ? Route::own : Route::ipc), "its route");
        }
        expect(rank.regions().cards().time_sliced(), "processes share a device");
        test::expect_regions_meet(rank, device);
        const auto own = rank.windows().allocate(50'000);
        comm.barrier();
        test::expect_window_meets(rank, own, device);
        const DeviceMemory memory = allocate_device(test::sim(), device, 10'000);
        const auto lent = rank.windows().register_memory(memory.get() + 512, 8000);
        test::expect_window_meets(rank, lent, device);
        rank.windows().release(lent, {});
        rank.windows().collect();
      });
}

TEST_CASE("processes without access to each other's devices meet in host memory") {
  on_processes(
      3,
      [](int) {
        soft::Settings settings = strict_machine();
        settings.peer_access = false;
        return settings;
      },
      [](Communicator& comm) {
        SimRank rank(comm, comm.rank());
        expect(rank.regions().in_host_memory(), "in host memory");
        test::expect_regions_meet(rank, comm.rank());
      });
}

TEST_CASE("processes on one device reach each other's regions, and others through host memory, where devices do not") {
  on_processes(
      4,
      [](int) {
        soft::Settings settings = strict_machine();
        settings.peer_access = false;
        return settings;
      },
      [](Communicator& comm) {
        SimRank rank(comm, comm.rank() % 2);
        expect(rank.regions().in_pairs(), "in pairs");
        for (int peer = 0; peer < 4; ++peer) {
          if (peer == comm.rank()) continue;
          expect(rank.regions().route(peer) == (peer % 2 == comm.rank() % 2 ? Route::ipc : Route::host), "its route");
        }
        test::expect_regions_meet(rank, comm.rank() % 2);
      });
}

TEST_CASE("a device is the same device whatever its index in a process") {
  on_processes(
      3,
      [](int rank) {
        soft::Settings settings = strict_machine();
        settings.visible_devices = rank == 0   ? std::vector<int>{0, 1, 2}
                                   : rank == 1 ? std::vector<int>{2, 0}
                                               : std::vector<int>{1};  // and does not see the others'
        return settings;
      },
      [](Communicator& comm) {
        // Rank 0 on device 0 of the machine, rank 1 too, rank 2 on device 1.
        const int device = comm.rank() == 1 ? 1 : 0;
        SimRank rank(comm, device);
        const DeviceCards& cards = rank.regions().cards();
        expect(cards.same_device(0, 1) && !cards.same_device(0, 2), "ranks 0 and 1 are on one device");
        expect(cards.access(2, 0) == DeviceCards::Access::unknown, "rank 2 does not see it");
        expect(rank.regions().route((comm.rank() + 1) % 3) == Route::ipc, "its route");
        test::expect_regions_meet(rank, device);
        const auto own = rank.windows().allocate(999);
        comm.barrier();
        test::expect_window_meets(rank, own, device);
      });
}

TEST_CASE("access that only an attempt can find denied ends in host memory too") {
  on_processes(
      2,
      [](int rank) {
        soft::Settings settings = strict_machine();
        settings.peer_access = false;
        settings.visible_devices = {rank};
        return settings;
      },
      [](Communicator& comm) {
        SimRank rank(comm, 0);
        expect(rank.regions().cards().access(0, 1) == DeviceCards::Access::unknown, "unknown beforehand");
        expect(rank.regions().in_host_memory(), "in host memory");
        test::expect_regions_meet(rank, 0);
      });
}

TEST_CASE("memory that cannot be exported is absent from a window, the others' is there") {
  on_processes(
      3, [](int) { return strict_machine(); },
      [](Communicator& comm) {
        SimRank rank(comm, 0);
        const DeviceMemory memory = allocate_device(test::sim(), 0, 4096);
        if (comm.rank() == 1) expect(soft::make_unexportable(memory.get()), "memory of a pool");
        const auto lent = rank.windows().register_memory(memory.get(), 4096);
        const auto team = rank.team();
        expect(team->windows[lent.window][0] != nullptr && team->windows[lent.window][1] == nullptr &&
                   team->windows[lent.window][2] != nullptr,
               "ranks 0 and 2 are in the window");
        const int found = rank.windows().find(memory.get(), 4096).window;
        expect(found == (comm.rank() == 1 ? kNoWindow : lent.window), "who is absent stages");
        rank.windows().release(lent, {});
        rank.windows().collect();
      });
}

TEST_CASE("processes come and go through many windows and regions without growth") {
  on_processes(
      2, [](int) { return strict_machine(); },
      [](Communicator& comm) {
        const std::size_t before = test::free_bytes(0);
        std::size_t files = 0;
        for (int i = 0; i < 10; ++i) {
          Communicator child = comm.split(0, comm.rank());  // a farewell to peers is said once
          SimRank rank(child, 0);
          for (std::size_t k = 0; k < 20; ++k) {
            const auto own = rank.windows().allocate(1000 + k * 3777 % 30'000);
            rank.windows().release(own, {});
          }
          comm.barrier();
          if (i == 0) files = shared_memory_files();
          expect(shared_memory_files() <= files, "no more files than at first");
          comm.barrier();
        }
        expect(test::free_bytes(0) == before, "all device memory is back");
      });
}

TEST_CASE("a process that is killed holds nobody up for long") {
  const auto ended = run_processes(
      3, [](int) { return soft::Settings{}; },
      [](Communicator& comm) {
        SimRank rank(comm, 0);
        const auto meet = [&] { comm.barrier(); };  // which rank 1 may leave, and die, before the others have left it
        if (comm.rank() == 1) {
          meet();
          ::raise(SIGKILL);
        }
        const auto error = test::thrown_by([&] {
          meet();
          rank.windows().allocate(100);
        });
        expect(test::code_of(error) == ErrorCode::peer_lost, "its loss is found");
        expect(test::sentence_of(error).starts_with("rank 1 "), test::sentence_of(error));
      });
  CHECK(ended[1].signal == SIGKILL);
  for (const int r : {0, 2}) {
    CHECK(ended[static_cast<std::size_t>(r)].failure == "");
    CHECK(ended[static_cast<std::size_t>(r)].seconds < 4);
  }
}
