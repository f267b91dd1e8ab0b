// SPDX-License-Identifier: Apache-2.0
// Which kernel a short all_reduce takes, as measured: LL between two ranks, windows among more.
#include "comm/device/launch/device_tuner.hpp"

#include "tests/support/catch.hpp"

namespace {

namespace device = rondo::comm::device;

std::string choice(int world_size, std::size_t bytes, bool windows = true) {
  const device::Choice found = device::choose({.pattern = rondo::kernels::Pattern::all_reduce, .bytes = bytes},
                                              {.world_size = world_size, .windows = windows});
  return std::string(device::name_of(found.kernel)) + " " + std::string(found.algorithm);
}

}  // namespace

TEST_CASE(
    "short all_reduces: LL between two ranks, over windows among more, which LL would serve one after the other") {
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
