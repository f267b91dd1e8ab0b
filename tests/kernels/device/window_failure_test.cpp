// SPDX-License-Identifier: Apache-2.0
// Window operations that do not go well: ranks that disagree, a rank that never comes, an abort. The kernel ends by
// itself and leaves the record; and what must go well for long: many operations, replays, any schedule.
#include <atomic>

#include "kernels/device/kernels.hpp"
#include "tests/kernels/device/window_case.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

// The general kernel, or the one that is made for sums of f32.
template <class F>
std::string with_kernel(DeviceWorld& world, bool special, std::vector<device::Launch>& all, F&& run) {
  const cuda::Kernels kernels = cuda::soft_kernels();
  if (!special) return run(kernels.window, all);
  auto sums = window_sum_launches(world, all);
  return run(kernels.window_sum[static_cast<int>(device::WindowSum::f32)], sums);
}
std::string run(DeviceWorld& world, bool special, std::vector<device::Launch>& all) {
  return with_kernel(world, special, all, [&](const void* kernel, auto& each) { return world.run(kernel, each); });
}
template <class... Meanwhile>
std::string run_on_threads(DeviceWorld& world, bool special, std::vector<device::Launch>& all, Meanwhile... meanwhile) {
  return with_kernel(world, special, all,
                     [&](const void* kernel, auto& each) { return world.run_on_threads(kernel, each, meanwhile...); });
}

int row_of(kernels::Pattern pattern, const char* name) { return kernels::find_window_algorithm(pattern, name); }

WindowCase all_reduce(const char* name, int ranks, std::size_t count) {
  WindowCase c{.row = row_of(kernels::Pattern::all_reduce, name), .call = {.ranks = ranks, .count = count}};
  c.call.threads = 32;
  return sensible(c);
}

std::vector<device::Launch> launches(DeviceWorld& world, int ranks) {
  std::vector<device::Launch> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(world.launch(rank));
  return all;
}

TEST_CASE("a launch of windows replays a hundred times") {
  const bool special = GENERATE(false, true);
  for (const auto windows : {Windows::all, Windows::none}) {
    WindowCase c = all_reduce("one_shot", 3, 50);
    WindowCase second = all_reduce("two_shot", 3, 77);
    c.windows = second.windows = windows;
    c.blocks = second.blocks = 2;
    second.call.channels = 2;  // the first has one: blocks count their meetings by themselves
    c = sensible(c);
    DeviceWorld world = world_of(c);
    FifoBuffers buffers(c.call), others(second.call);
    auto all = launches(world, 3);
    add_operation(c, buffers, world, all, 0);
    add_operation(second, others, world, all, 1);
    for (std::uint32_t replay = 0; replay < 100; ++replay) {
      buffers.fill(replay);
      others.fill(replay + 1000);
      REQUIRE(run(world, special, all) == "");
      REQUIRE(buffers.check() == "");
      REQUIRE(others.check() == "");
    }
    CHECK(world.header(2).block_sequence[0] == 200);
    CHECK(world.header(2).block_epoch[0] > world.header(2).block_epoch[1]);
  }
}

TEST_CASE("ranks that disagree are told the peer's signature") {
  const bool special = GENERATE(false, true);
  const WindowCase c = all_reduce("two_shot", 3, 100);
  DeviceWorld world = world_of(c);
  FifoBuffers buffers(c.call);
  auto all = launches(world, 3);
  buffers.fill(1);
  add_operation(c, buffers, world, all);
  all[1].operation[0].signature.count = 99;
  CHECK(run(world, special, all) == "");
  for (int rank = 0; rank < 3; ++rank) {
    const device::Fault& fault = world.page(rank).fault;
    INFO("rank " << rank);
    REQUIRE(fault.is_set == 1);
    CHECK(fault.kind == device::FaultKind::mismatch);
    CHECK(fault.window);
    CHECK(fault.mine.count == (rank == 1 ? 99u : 100u));
    CHECK(fault.theirs.count == (rank == 1 ? 100u : 99u));
    CHECK(fault.theirs.sequence == 1);
    CHECK((rank == 1 ? fault.peer != 1 : fault.peer == 1));
    CHECK(world.header(rank).failed == 1);
  }
  // Later kernels do nothing, whatever they are asked for.
  CHECK(run(world, special, all) == "");
}

// An all_reduce that the last rank never comes to.
struct Incomplete {
  explicit Incomplete(int ranks)
      : what(all_reduce("one_shot", ranks, 100)),
        world(world_of(what)),
        buffers(what.call),
        present(launches(world, ranks)) {
    buffers.fill(1);
    add_operation(what, buffers, world, present);
    present.pop_back();
  }
  WindowCase what;
  DeviceWorld world;
  FifoBuffers buffers;
  std::vector<device::Launch> present;
};

TEST_CASE("a rank that never comes is named when the deadline passes") {
  const bool special = GENERATE(false, true);
  Incomplete call(3);
  DeviceWorld& world = call.world;
  for (auto& launch : call.present) launch.timeout_ns = 50'000'000;
  CHECK(run_on_threads(world, special, call.present) == "");
  for (int rank = 0; rank < 2; ++rank) {
    const device::Fault& fault = world.page(rank).fault;
    REQUIRE(fault.is_set == 1);
    CHECK(fault.kind == device::FaultKind::timeout);
    CHECK(fault.peer == 2);
    CHECK(fault.step == 1);
  }
  CHECK(world.page(0).told == 1);
  CHECK(world.page(0).waiting_for == 2);
}

TEST_CASE("an abort ends a kernel that waits") {
  const bool special = GENERATE(false, true);
  Incomplete call(2);
  DeviceWorld& world = call.world;
  const auto abort = [&] { __atomic_store_n(&world.page(0).abort, 1, __ATOMIC_RELEASE); };
  CHECK(run_on_threads(world, special, call.present, abort) == "");
  REQUIRE(world.page(0).fault.is_set == 1);
  CHECK(world.page(0).fault.kind == device::FaultKind::aborted);
}

// Seeded schedules of short launches: arrivals, both parities, staging areas used again, with and without second
// meeting. Weak stores too.
int explore(std::uint32_t seed, int seeds) {
  for (int i = 0; i < seeds; ++i) {
    const auto number = seed + static_cast<std::uint32_t>(i);
    const char* name = number % 2 == 0 ? "one_shot" : "two_shot";
    WindowCase c = all_reduce(name, 2 + static_cast<int>(number % 3), 9 + number % 40);
    if (number % 5 == 0) c.row = row_of(kernels::Pattern::all_to_all, "direct");
    if (number % 7 == 0) c.row = row_of(kernels::Pattern::gather, "direct");
    c.windows = static_cast<Windows>(number / 6 % kWindowsCount);
    c = sensible(c);
    const simt::Options options{.policy = static_cast<simt::Policy>(number % simt::kPolicyCount),
                                .seed = number,
                                .explore = true,
                                .weak = number % 4 == 1,
                                .pct_steps = 3000,
                                .max_steps = 2'000'000};
    const std::string wrong = run_case(c, number, 3, options);
    if (!wrong.empty()) FAIL(wrong);
  }
  return seeds;
}

TEST_CASE("window operations under seeded schedules") { CHECK(explore(rotating_seed(), 300) > 0); }
TEST_CASE("window operations under many seeded schedules", "[.full]") { CHECK(explore(rotating_seed(), 3000) > 0); }

}  // namespace
}  // namespace rondo::test
