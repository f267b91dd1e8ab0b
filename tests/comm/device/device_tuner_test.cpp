// SPDX-License-Identifier: Apache-2.0
// Which kernel a short all_reduce takes, as measured: LL between two ranks, windows among more.
#include "comm/device/launch/device_tuner.hpp"

#include <fmt/format.h>

#include "tests/support/catch.hpp"

namespace {

namespace device = rondo::comm::device;

std::string choice(int world_size, std::size_t bytes, bool windows = true) {
  const device::Choice found = device::choose({.pattern = rondo::kernels::Pattern::all_reduce, .bytes = bytes},
                                              {.world_size = world_size, .windows = windows});
  return std::string(device::name_of(found.kernel)) + " " + std::string(found.algorithm);
}

}  // namespace

TEST_CASE("short all_reduces: LL between two ranks, over windows among more") {
  CHECK(choice(2, 8) == "ll one_shot");
  CHECK(choice(2, 2048) == "ll one_shot");
  CHECK(choice(2, 2052) == "window one_shot");
  for (const int ranks : {3, 4, 8}) {
    CHECK(choice(ranks, 8) == "window one_shot");
    CHECK(choice(ranks, 128 * 1024) == "window one_shot");
    CHECK(choice(ranks, 128 * 1024 + 4) == "window two_shot");
  }
  CHECK(choice(9, 8) == "window two_shot");
}

TEST_CASE("a kernel that is asked for by name is the same whatever the table prefers") {
  const device::Choice found = device::choose({.pattern = rondo::kernels::Pattern::all_reduce, .bytes = 8},
                                              {.world_size = 8, .protocol = "ll", .threads = 512});
  CHECK(device::name_of(found.kernel) == "ll");
  CHECK(found.algorithm == "one_shot");
  CHECK(found.threads == 128);
}

TEST_CASE("where peers' memory is out of reach, no all_reduce goes over windows") {
  for (const int ranks : {2, 3, 8}) CHECK(choice(ranks, 8, false) == "ll one_shot");
  CHECK(choice(8, 4096, false) == "simple ring");
  CHECK(choice(9, 8, false) == "simple ring");
}

TEST_CASE("short calls are pushed, where the ranks reach each other's memory and a push kernel runs them") {
  using rondo::kernels::Pattern;
  constexpr std::size_t K = 1024;
  const auto choose = [](rondo::comm::CallShape shape, int ranks, std::size_t push_bytes = 16384) {
    const device::Choice found = device::choose(
        shape, {.world_size = ranks, .blocks = 32, .threads = 512, .push_bytes = push_bytes, .slots_bytes = 0});
    return fmt::format("{} {} {}x{}", device::name_of(found.kernel), found.algorithm, found.channels, found.threads);
  };
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = 8}, 2) == "push one_shot 1x64");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = 4 * K}, 8) == "push one_shot 1x512");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = 4 * K + 4}, 8) == "push one_shot 2x512");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = 16 * K}, 4) == "push one_shot 4x512");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = 16 * K + 4}, 4) == "window one_shot 2x512");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = K}, 9) == "push one_shot 1x160");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = K + 4}, 9) == "window two_shot 1x512");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = 8, .dtype = rondo::DataType::i32}, 2) == "ll one_shot 1x128");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = 8, .op = rondo::ReduceOp::max}, 4) == "window one_shot 1x512");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = 8}, 4, 0) == "window one_shot 1x512");
  CHECK(choose({.pattern = Pattern::all_reduce, .bytes = 8 * K}, 4, 4 * K) == "window one_shot 1x512");
  CHECK(choose({.pattern = Pattern::all_gather, .bytes = 64 * K}, 4) == "push direct 4x512");
  CHECK(choose({.pattern = Pattern::all_gather, .bytes = 64 * K}, 2) == "window direct 1x512");
  CHECK(choose({.pattern = Pattern::all_gather, .bytes = 64, .variable_counts = true}, 2) == "window direct 1x512");
  CHECK(choose({.pattern = Pattern::reduce_scatter, .bytes = 64 * K}, 8) == "push direct 2x512");
  CHECK(choose({.pattern = Pattern::broadcast, .bytes = 100}, 3) == "push direct 1x64");
  CHECK(choose({.pattern = Pattern::reduce, .bytes = 8}, 2) == "window direct 1x512");
  CHECK(choose({.pattern = Pattern::barrier}, 16) == "push direct 1x64");
}

TEST_CASE("a push that is asked for by name is had for what its inboxes take") {
  const auto named = [](std::size_t bytes) {
    const device::Choice found =
        device::choose({.pattern = rondo::kernels::Pattern::all_reduce, .bytes = bytes},
                       {.world_size = 16, .protocol = "push", .threads = 512, .push_bytes = 8192, .slots_bytes = 0});
    return std::string(device::name_of(found.kernel));
  };
  CHECK(named(8192) == "push");
  CHECK(named(8196) == "window");
}

TEST_CASE("thresholds of the tuning file decide between pushes, windows, rings and trees") {
  using rondo::kernels::Pattern;
  device::Terms terms{.world_size = 4,
                      .push_bytes = 1 << 20,
                      .slots_bytes = 0,
                      .push_most = 10000,
                      .push_block_most = 15000,
                      .one_shot_most = 20000,
                      .window_most = 30000,
                      .ll_most = 40000,
                      .ll128_most = 50000};
  const auto chosen = [&](Pattern pattern, std::size_t bytes) {
    const device::Choice found = device::choose({.pattern = pattern, .bytes = bytes}, terms);
    return fmt::format("{} {}", device::name_of(found.kernel), found.algorithm);
  };
  CHECK(chosen(Pattern::all_reduce, 10000) == "push one_shot");
  CHECK(chosen(Pattern::all_reduce, 10004) == "window one_shot");
  CHECK(chosen(Pattern::all_reduce, 20000) == "window one_shot");
  CHECK(chosen(Pattern::all_reduce, 20004) == "window two_shot");
  CHECK(chosen(Pattern::all_reduce, 30000) == "window two_shot");
  CHECK(chosen(Pattern::all_reduce, 30004) == "ll128 ring");
  CHECK(chosen(Pattern::all_reduce, 50004) == "simple ring");
  CHECK(chosen(Pattern::broadcast, 10004) == "window direct");
  CHECK(chosen(Pattern::broadcast, 30004) == "ll tree");
  CHECK(chosen(Pattern::broadcast, 40004) == "ll128 ring");
  CHECK(chosen(Pattern::broadcast, 50004) == "simple ring");
  CHECK(chosen(Pattern::reduce, 30000) == "window direct");
  CHECK(chosen(Pattern::reduce, 40000) == "ll ring");
  CHECK(chosen(Pattern::reduce, 50000) == "ll128 ring");
  constexpr std::size_t kNeverPushed = 100'000;
  for (const Pattern blocks : {Pattern::all_gather, Pattern::reduce_scatter}) {
    CHECK(chosen(blocks, 15000) == "push direct");
    CHECK(chosen(blocks, 15004) == "window direct");
    CHECK(chosen(blocks, 30000) == "window direct");
    CHECK(chosen(blocks, 50000) == "ll128 ring");
  }
  CHECK(chosen(Pattern::all_gather, kNeverPushed) == "simple ring");
  CHECK(chosen(Pattern::reduce_scatter, kNeverPushed) == "simple ring");
  CHECK(chosen(Pattern::all_to_all, 30000) == "window direct");
  CHECK(chosen(Pattern::all_to_all, kNeverPushed) == "simple pairwise");
  CHECK(chosen(Pattern::gather, kNeverPushed) == "simple direct");
  CHECK(chosen(Pattern::scatter, kNeverPushed) == "simple direct");
  terms.protocols[static_cast<std::size_t>(device::KernelKind::ll128)] = false;
  CHECK(chosen(Pattern::all_reduce, 30004) == "simple ring");
}

TEST_CASE("a threshold of 0 is obeyed at every size and in every world") {
  using rondo::kernels::Pattern;
  constexpr std::size_t kNone = 0, kLeast = 4, kMost = 1 << 20;
  for (const int ranks : {2, 8, 9}) {
    for (const bool time_sliced : {false, true}) {
      device::Terms terms{.world_size = ranks,
                          .push_bytes = 1 << 20,
                          .time_sliced = time_sliced,
                          .round_bytes = 1 << 20,
                          .push_most = 0,
                          .push_block_most = 0,
                          .window_most = 0};
      const auto chosen = [&](Pattern pattern, std::size_t bytes) {
        return device::name_of(device::choose({.pattern = pattern, .bytes = bytes}, terms).kernel);
      };
      CAPTURE(ranks, time_sliced);
      for (const std::size_t bytes : {kNone, kLeast, kMost}) {
        for (const Pattern pattern :
             {Pattern::all_reduce, Pattern::broadcast, Pattern::all_gather, Pattern::reduce_scatter, Pattern::reduce,
              Pattern::all_to_all, Pattern::gather, Pattern::scatter}) {
          CHECK(chosen(pattern, bytes) != "window");
          CHECK(chosen(pattern, bytes) != "push");
          CHECK(chosen(pattern, bytes) != "ll128");
        }
      }
      terms.window_most = SIZE_MAX, terms.one_shot_most = 0;
      CHECK((time_sliced || device::choose({.bytes = kMost}, terms).algorithm == "two_shot"));
    }
  }
}

TEST_CASE("processes that take turns on a GPU take the fewest dependent rounds") {
  device::Terms terms{.world_size = 2, .blocks = 16, .time_sliced = true, .round_bytes = 2 << 20};
  const auto chosen = [&](rondo::kernels::Pattern pattern, std::size_t bytes) {
    return device::choose({.pattern = pattern, .bytes = bytes}, terms);
  };
  using rondo::kernels::Pattern;
  CHECK(device::name_of(chosen(Pattern::all_reduce, 8).kernel) == "ll");
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{2} << 20}) {
    const device::Choice one = chosen(Pattern::all_reduce, bytes);
    CHECK(one.algorithm == "one_shot");
    CHECK(one.stages);
    CHECK(one.channels == 16);
    CHECK(chosen(Pattern::reduce_scatter, bytes).stages);
    CHECK_FALSE(chosen(Pattern::all_gather, bytes).stages);  // its meeting is there in any case
  }
  const device::Choice longer = chosen(Pattern::all_reduce, (2 << 20) + 4);
  CHECK(longer.algorithm == "two_shot");
  CHECK_FALSE(longer.stages);
  terms.time_sliced = false;
  CHECK_FALSE(chosen(Pattern::all_reduce, 4096).stages);
}
