// SPDX-License-Identifier: Apache-2.0
// Regions of ranks that are threads: who reaches whose memory and how, and that all of it is given back.
#include "comm/device/memory/regions.hpp"

#include "tests/comm/device/reachability.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::comm::device;
using kernels::device::Protocol;
using test::expect;
using test::Machine;
using test::on_ranks;
using test::SimRank;

TEST_CASE("threads reach each other's regions, on one device and on several") {
  const int devices = GENERATE(1, 2);
  const int world_size = GENERATE(1, 2, 5);
  CAPTURE(devices, world_size);
  on_ranks(world_size, [&](Communicator& comm) {
    const int device = comm.rank() % devices;
    SimRank rank(comm, device);
    expect(rank.regions().one_island(), "one island");
    expect(!rank.regions().in_host_memory(), "in device memory");
    for (int peer = 0; peer < world_size; ++peer) {
      expect(rank.regions().route(peer) == (peer == comm.rank() ? Route::own : Route::thread), "its route");
    }
    test::expect_regions_meet(rank, device);
  });
}

TEST_CASE("devices without access to each other meet in host memory") {
  const int why = GENERATE(0, 1, 2);
  const Machine machine([&](soft::Settings& settings) {
    settings.peer_access = why != 0;
    if (why == 1) settings.broken_peers = {{0, 1}, {0, 2}, {1, 2}};  // a self-test tells
  });
  const test::Setting off("RONDO_DEVICE_P2P", why == 2 ? "off" : "");
  on_ranks(3, [&](Communicator& comm) {
    SimRank rank(comm, comm.rank());
    expect(rank.regions().in_host_memory(), "in host memory");
    expect(rank.regions().route((comm.rank() + 1) % 3) == Route::host, "its route");
    test::expect_regions_meet(rank, comm.rank());
    const auto own = rank.windows().allocate(4096);
    expect(rank.windows().find(own.data, 8).window == kNoWindow, "no windows without access");
    test::expect_word(own.data + 4088, 0, comm.rank(), "fresh memory");
  });
}

TEST_CASE(
    "a pair of devices without access, or whose access does not work, has its links in host memory, and no other") {
  const bool broken = GENERATE(false, true);
  const Machine machine([&](soft::Settings& settings) {
    (broken ? settings.broken_peers : settings.denied_peers) = {{0, 2}};
  });
  on_ranks(4, [&](Communicator& comm) {
    const int device = comm.rank() % 3;  // ranks 0 and 3 share one
    SimRank rank(comm, device);
    Regions& regions = rank.regions();
    expect(regions.in_pairs() && !regions.in_host_memory() && regions.one_island(), "in pairs");
    for (int peer = 0; peer < 4; ++peer) {
      const bool denied = device + peer % 3 == 2 && device != 1;
      const Route expected = peer == comm.rank() ? Route::own : denied ? Route::host : Route::thread;
      expect(regions.route(peer) == expected, "the route to rank " + std::to_string(peer));
    }
    test::expect_regions_meet(rank, device);
    const auto team = rank.team();
    const auto& layout = team->layout;
    for (int peer = 0; peer < 4; ++peer) {
      for (const std::uint64_t epoch : {0U, 1U}) {
        test::expect_word(team->mine[comm.rank()] + layout.arrival_offset(epoch, 0, peer), 0, device,
                          "no token is left");
      }
    }
    const auto own = rank.windows().allocate(4096);
    expect(rank.windows().find(own.data, 8).window == kNoWindow, "no windows without access");
  });
}

TEST_CASE("LL128 is left out where a bus cuts its lines") {
  const Machine machine([](soft::Settings& settings) { settings.plain_peers = {{0, 1}}; });
  on_ranks(3, [&](Communicator& comm) {
    for (const bool plain : {true, false}) {
      SimRank rank(comm, plain ? comm.rank() : comm.rank() == 1 ? 2 : 0);
      expect(has_protocol(rank.regions().layout(), Protocol::ll128) == !plain, "LL128");
      expect(has_protocol(rank.regions().layout(), Protocol::ll), "LL");
      comm.barrier();
    }
  });
}

TEST_CASE("RONDO_DEVICE_P2P is on or off") {
  const test::Setting setting("RONDO_DEVICE_P2P", "maybe");
  const auto error = test::thrown_by([] { Settings::from_environment(Device::Kind::sim); });
  CHECK(test::code_of(error) == ErrorCode::invalid_argument);
  CHECK(test::sentence_of(error) == "RONDO_DEVICE_P2P=maybe is neither on nor off");
}

TEST_CASE("a machine without access is no matter to ranks on one device") {
  const Machine machine([](soft::Settings& settings) { settings.peer_access = false; });
  on_ranks(2, [&](Communicator& comm) {
    SimRank rank(comm, 1);
    expect(!rank.regions().in_host_memory(), "in device memory");
    test::expect_regions_meet(rank, 1);
  });
}

TEST_CASE("ranks of another node have links in pinned memory, and no region") {
  on_ranks(4, [&](Communicator& comm) {
    SimRank rank(comm, 0, std::vector<int>{0, 0, 1, 1});
    Regions& regions = rank.regions();
    const auto team = rank.team();
    const int self = comm.rank(), remote = self ^ 2;
    expect(!regions.one_island(), "two islands");
    expect(!has_protocol(regions.layout(), Protocol::ll), "no LL over a proxy");
    expect(!has_protocol(regions.layout(), Protocol::ll128), "no LL128 over a proxy");
    expect(regions.route(self ^ 1) == Route::thread && regions.route(remote) == Route::proxy, "its route");
    expect(team->headers[remote] == nullptr && team->windows[0][remote] == nullptr, "nothing of it is mapped");
    expect(team->theirs[remote] == regions.link_ends(remote).theirs, "its end of the link");
    expect(team->mine[remote] == regions.link_ends(remote).mine, "my end of the link");
    test::expect_regions_meet(rank, 0);
    // The whole of both ends is there, and they do not overlap.
    const auto& layout = regions.layout();
    const std::size_t bytes = layout.channel_bytes() * static_cast<std::size_t>(layout.channels);
    std::memset(regions.link_ends(remote).mine + layout.mailbox_offset(remote, 0, Protocol::simple), 1, bytes);
    std::memset(regions.link_ends(remote).theirs + layout.mailbox_offset(self, 0, Protocol::simple), 2, bytes);
    expect(
        regions.link_ends(remote).mine[layout.mailbox_offset(remote, 0, Protocol::simple) + bytes - 1] == std::byte{1},
        "the ends do not overlap");
  });
}

TEST_CASE("a device that is full is every rank's error, and leaves nothing behind") {
  const Machine machine([](soft::Settings& settings) { settings.memory_bytes = 1 << 20; });
  const std::size_t before[] = {test::free_bytes(0), test::free_bytes(1)};
  {
    const DeviceMemory hog = allocate_device(test::sim(), 1, test::free_bytes(1) - 4096);
    const auto errors = test::run_ranks(3, {}, [&](Communicator& comm) { SimRank rank(comm, comm.rank() == 2); });
    for (const auto& error : errors) {
      CHECK(test::code_of(error) == ErrorCode::cuda);
      CHECK(test::sentence_of(error).starts_with("rank 2 cannot have its device memory: sim device 1: allocating "));
    }
  }
  CHECK(test::free_bytes(0) == before[0]);
  CHECK(test::free_bytes(1) == before[1]);
}

TEST_CASE("regions come and go without growth, and say what they take") {
  const std::size_t before = test::free_bytes(0);
  on_ranks(3, [&](Communicator& comm) {
    for (int i = 0; i < 20; ++i) {
      SimRank rank(comm, 0);
      comm.barrier();
      if (comm.rank() == 0) expect(before - test::free_bytes(0) == 3 * rank.regions().device_bytes(), "what it says");
      comm.barrier();
    }
  });
  CHECK(test::free_bytes(0) == before);
}

TEST_CASE("rank 0's settings are everybody's") {
  on_ranks(2, [&](Communicator& comm) {
    Settings settings = Settings::from_environment(Device::Kind::sim);
    settings.channels = settings.blocks = comm.rank() == 0 ? 3 : 7;
    SimRank rank(comm, 0, {}, settings);
    expect(rank.regions().layout().channels == 3, "three channels");
    test::expect_regions_meet(rank, 0);
  });
}

TEST_CASE("more ranks than a device can run are refused at once") {
  const Machine machine([](soft::Settings& settings) { settings.multiprocessors = settings.resident_blocks = 2; });
  const auto started = std::chrono::steady_clock::now();
  for (const auto& error : test::run_ranks(3, {}, [&](Communicator& comm) { SimRank rank(comm, 0); })) {
    CHECK(test::code_of(error) == ErrorCode::unsupported);
    CHECK(test::sentence_of(error).find("runs 2 blocks at a time") != std::string::npos);
  }
  on_ranks(2, [&](Communicator& comm) {
    SimRank rank(comm, 0);
    expect(rank.regions().layout().blocks == 1 && rank.regions().layout().channels == 1, "a block each");
    comm.barrier();
    SimRank another(comm, 0);
    expect(!rank.regions().reservation().is_lent() && another.regions().reservation().is_lent(), "it has turns");
    expect(another.regions().reservation().berth() == rank.regions().reservation().berth(), "of its own rank");
    test::expect_regions_meet(another, 0);
  });
  CHECK(std::chrono::steady_clock::now() - started < std::chrono::seconds(1));
}
