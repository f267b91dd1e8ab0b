// SPDX-License-Identifier: Apache-2.0
// Push operations that do not go well: ranks that disagree, a rank that never comes, an abort, lines of earlier epochs.
// And what must go well for long: replays, groups, any schedule.
#include "kernels/device/kernels.hpp"
#include "kernels/device/sequence.cuh"
#include "tests/kernels/device/push_case.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

using kernels::Pattern;

PushCase small_case(Pattern pattern, int ranks, std::size_t count) {
  return sensible({.pattern = pattern, .call = {.ranks = ranks, .count = count, .root = 1, .threads = 32}});
}

void start_epochs(DeviceWorld& world, std::uint32_t epoch) {
  for (int rank = 0; rank < world.shape().ranks; ++rank) {
    for (std::uint32_t& each : world.header(rank).push_epoch) each = epoch;
  }
}

TEST_CASE("launches of the push kernels replay a hundred times") {
  for (const std::uint32_t start : {0u, (1u << 14) - 50, (1u << 15) - 150, 0u - 150}) {
    PushCase cases[] = {small_case(Pattern::all_gather, 3, 500), small_case(Pattern::broadcast, 3, 3),
                        small_case(Pattern::all_gather, 3, 40), small_case(Pattern::broadcast, 3, 900),
                        small_case(Pattern::barrier, 3, 0)};
    for (PushCase& c : cases) c.blocks = 2;
    cases[2].call.channels = 2;  // the others have one: blocks count their epochs by themselves
    DeviceWorld world = world_of(cases[0]);
    start_epochs(world, start);
    std::vector<FifoBuffers> buffers;
    for (const PushCase& c : cases) buffers.emplace_back(c.call);
    auto all = push_launches(world);
    for (std::uint32_t replay = 0; replay < 100; ++replay) {
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        buffers[i].fill(replay + 1000 * static_cast<std::uint32_t>(i));
        if (replay == 0) add_operation(cases[i], buffers[i], all, static_cast<int>(i));
      }
      REQUIRE(world.run(cases[0].kernel(), all).empty());
      for (const FifoBuffers& each : buffers) REQUIRE(each.check() == "");
    }
    CHECK(world.header(2).block_sequence[0] == 500);
    CHECK(world.header(2).block_sequence[device::kMaxBlocks - 1] == 500);
    CHECK(world.header(2).push_epoch[0] == start + 500);
    CHECK(world.header(2).push_epoch[1] == start + 100);
  }
}

// The reader runs first and must not take what far lines held when their flags were last the same.
TEST_CASE("a line that short messages have not reached is not taken for new when its epoch's bits come round again") {
  constexpr std::uint32_t kRound = 1u << 15, kRefresh = 1u << 14;
  const PushCase longer = small_case(Pattern::all_reduce, 2, 400), shorter = small_case(Pattern::all_reduce, 2, 2);
  DeviceWorld world = world_of(longer);
  const auto run = [&](const PushCase& c, std::uint32_t epoch, std::uint32_t seed) {
    start_epochs(world, epoch - 1);
    for (int rank = 0; rank < 2; ++rank) world.header(rank).block_sequence[0] = 7;  // so that the hash is the same, too
    FifoBuffers buffers(c.call);
    buffers.fill(seed);
    auto all = push_launches(world);
    add_operation(c, buffers, all);
    const std::string report = world.run(c.kernel(), all);
    return report.empty() ? buffers.check() : report;
  };
  CHECK(run(longer, 7, 1) == "");
  for (std::uint32_t epoch = kRefresh; epoch < kRefresh + 2; ++epoch) CHECK(run(shorter, epoch, 2) == "");
  CHECK(run(longer, kRound + 7, 3) == "");
}

TEST_CASE("ranks that disagree in a push are told the peer's signature") {
  for (const bool in_threads : {false, true}) {
    const PushCase c = small_case(Pattern::all_reduce, 3, 100);
    DeviceWorld world = world_of(c);
    FifoBuffers buffers(c.call);
    buffers.fill(1);
    auto all = push_launches(world);
    add_operation(c, buffers, all);
    device::Operation other{.input = all[1].operation[0].input,
                            .output = all[1].operation[0].output,
                            .count = 99,
                            .factor = 1,
                            .signature = all[1].operation[0].signature,
                            .algorithm = 0,
                            .root = 0,
                            .send_counts = device::kNoCounts,
                            .recv_counts = device::kNoCounts,
                            .dtype = 0,
                            .op = 0,
                            .reduces = true,
                            .channels = 1,
                            .send_window = -1,
                            .recv_window = -1,
                            .send_offset = 0,
                            .recv_offset = 0};
    other.signature.count = 99;
    all[1].operation[0] = device::make_push(c.pattern, other, 396);
    CHECK((in_threads ? world.run_on_threads(c.kernel(), all) : world.run(c.kernel(), all)) == "");
    for (int rank = 0; rank < 3; ++rank) {
      const device::Fault& fault = world.page(rank).fault;
      INFO("rank " << rank);
      REQUIRE(fault.is_set == 1);
      CHECK(fault.kind == device::FaultKind::mismatch);
      CHECK(fault.mine.count == (rank == 1 ? 99u : 100u));
      CHECK(fault.theirs.count == (rank == 1 ? 100u : 99u));
      CHECK(fault.theirs.sequence == 1);
      CHECK((rank == 1 ? fault.peer != 1 : fault.peer == 1));
      CHECK(world.header(rank).failed == 1);
    }
    CHECK(world.run(c.kernel(), all) == "");  // later kernels do nothing
  }
}

// Rank 1 has called something before that the others have not: they find where they parted.
TEST_CASE("ranks whose numbers of calls differ are told the first call in which they do") {
  const PushCase c = small_case(Pattern::all_reduce, 2, 100);
  DeviceWorld world = world_of(c);
  device::RegionHeader& ahead = world.header(1);
  ahead.block_sequence[0] = 1;
  const device::DeviceSignature before{1, 7, 77, 777};
  ahead.history[1] = {before, ~device::key_of(before)};
  FifoBuffers buffers(c.call);
  buffers.fill(1);
  auto all = push_launches(world);
  add_operation(c, buffers, all);
  CHECK(world.run_on_threads(c.kernel(), all) == "");
  for (int rank = 0; rank < 2; ++rank) {
    const device::Fault& fault = world.page(rank).fault;
    REQUIRE(fault.is_set == 1);
    CHECK(fault.kind == device::FaultKind::mismatch);
    CHECK(fault.mine.sequence == 1);
    CHECK(fault.theirs.sequence == 1);
    CHECK((rank == 0 ? fault.theirs : fault.mine).count == 7);
    CHECK((rank == 0 ? fault.mine : fault.theirs).count == 100);
  }
}

// A push that the last rank never comes to.
struct Incomplete {
  explicit Incomplete(Pattern pattern, int ranks)
      : what(small_case(pattern, ranks, 100)),
        world(world_of(what)),
        buffers(what.call),
        present(push_launches(world)) {
    buffers.fill(1);
    add_operation(what, buffers, present);
    present.pop_back();
  }
  PushCase what;
  DeviceWorld world;
  FifoBuffers buffers;
  std::vector<device::PushLaunch> present;
};

TEST_CASE("a rank that never comes to a push is named when the deadline passes") {
  for (const Pattern pattern : {Pattern::all_reduce, Pattern::broadcast, Pattern::barrier}) {
    Incomplete call(pattern, 3);
    DeviceWorld& world = call.world;
    for (auto& launch : call.present) launch.timeout_ns = 50'000'000;
    CHECK(world.run_on_threads(call.what.kernel(), call.present) == "");
    for (int rank = 0; rank < 2; ++rank) {
      const device::Fault& fault = world.page(rank).fault;
      REQUIRE(fault.is_set == 1);
      CHECK(fault.kind == device::FaultKind::timeout);
      CHECK(fault.peer == 2);
      CHECK(fault.step == 1);
      CHECK(fault.mine.sequence == 1);
    }
    CHECK(world.page(0).told == 1);
    CHECK(world.page(0).waiting_for == 2);
  }
}

TEST_CASE("an abort ends a push that waits") {
  Incomplete call(Pattern::all_reduce, 2);
  DeviceWorld& world = call.world;
  const auto abort = [&] { __atomic_store_n(&world.page(0).abort, 1, __ATOMIC_RELEASE); };
  CHECK(world.run_on_threads(call.what.kernel(), call.present, abort) == "");
  REQUIRE(world.page(0).fault.is_set == 1);
  CHECK(world.page(0).fault.kind == device::FaultKind::aborted);
}

// Seeded schedules of groups, in which a thread may be two operations ahead of a peer's but for the barrier.
int explore(std::uint32_t seed, int seeds) {
  for (int i = 0; i < seeds; ++i) {
    const auto number = seed + static_cast<std::uint32_t>(i);
    const PushCase c = small_case(kPushPatterns[number % std::size(kPushPatterns)],
                                  2 + static_cast<int>(number / 5 % 3), 1 + number % 90);
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

TEST_CASE("push operations under seeded schedules") { CHECK(explore(rotating_seed(), 300) > 0); }
TEST_CASE("push operations under many seeded schedules", "[.full]") { CHECK(explore(rotating_seed(), 3000) > 0); }

}  // namespace
}  // namespace rondo::test
