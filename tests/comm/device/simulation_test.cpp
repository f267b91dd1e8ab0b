// SPDX-License-Identifier: Apache-2.0
#include "comm/device/setup/simulation.hpp"

#include <cstdlib>

#include "kernels/cuda/api.hpp"
#include "kernels/soft/settings.hpp"
#include "tests/support/catch.hpp"

namespace rondo::comm::device {
namespace {

constexpr const char* kVisible = "RONDO_SIM_VISIBLE_DEVICES";
std::optional<std::vector<int>> visible_as(const char* list) {
  setenv(kVisible, list, 1);
  soft::reset();
  configure_simulation();
  unsetenv(kVisible);
  return soft::settings().visible_devices;
}

}  // namespace

TEST_CASE("The visible devices of the simulated machine are a list of numbers", "[comm]") {
  CHECK(visible_as("2,0") == std::vector<int>{2, 0});
  int count = 0;
  CHECK(cuda::soft_api().GetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 2);
  CHECK(visible_as("1,x,3") == std::vector<int>{1});
  CHECK(visible_as("") == std::nullopt);
}

}  // namespace rondo::comm::device
