// SPDX-License-Identifier: Apache-2.0
// All collectives among ranks of which some cannot reach each other's memory, against the same on the CPU.
#include <optional>

#include "comm/call/communicator_impl.hpp"
#include "comm/device/setup/simulation.hpp"
#include "kernels/soft/settings.hpp"
#include "tests/comm/device/calls.hpp"
#include "tests/comm/device/worlds.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

void configure(std::size_t denied) {
  const auto until = std::chrono::steady_clock::now() + 30s;
  do {  // threads of destroyed streams may be about to end
    comm::device::configure_simulation();
  } while (soft::settings().denied_peers.size() != denied && std::chrono::steady_clock::now() < until);
  REQUIRE(soft::settings().denied_peers.size() == denied);
}

}  // namespace

TEST_CASE("collectives and messages of ranks of which two pairs have no access") {
  const Setting devices("RONDO_SIM_DEVICES", "4"), denied("RONDO_SIM_DENIED_PEERS", "0-2,1-3");
  configure(2);
  for (const Collective collective : kCollectives) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{5000}}) {
      CAPTURE(name_of(collective), count);
      const CallCase c{.collective = collective, .count = count, .root = 1};
      CHECK(run_case(4, on_sim(), c) == run_case(4, {}, c));
    }
  }
  on_ranks(
      4,
      [](Communicator& comm) {
        const int across = comm.rank() ^ 2;
        DeviceArray<std::int32_t> out(comm.device(), ramp(comm.rank(), 30'000)), in(comm.device(), 30'000);
        auto group = comm.group();
        group.send(out.span(), across);
        group.recv(in.span(), across);
        group.end();
        comm.synchronize();
        expect(in.to_host() == ramp(across, 30'000), "wrong message");
      },
      on_sim());
}

// Ranks 0 and 2 share a device, and the links of both with rank 1 lie in host memory.
TEST_CASE("host memory is given back while a peer's kernel waits on the device for the rank that does it") {
  const Setting devices("RONDO_SIM_DEVICES", "2"), denied("RONDO_SIM_DENIED_PEERS", "0-1");
  configure(1);
  std::atomic<bool> waits{false};
  on_ranks(
      3,
      [&](Communicator& comm) {
        auto child = std::make_optional(comm.split(0, comm.rank()));
        child->barrier();
        child->synchronize();
        comm.all_gather_bytes({});
        if (comm.rank() == 2) {
          Work work = comm.async().barrier();
          expect(!work.wait_for(50ms), "it did not wait for rank 0");
          waits = true;
          work.wait();
          return;
        }
        if (comm.rank() == 0) {
          await(waits);
          child.reset();
        }
        comm.barrier();
        comm.synchronize();
      },
      on_sim(20s));
}
