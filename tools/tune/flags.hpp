// SPDX-License-Identifier: Apache-2.0
// Command line of rondo-tune.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::tune {

struct Flags {
  int ranks = 0, threads = 0, rounds = 3;  // 0: not said
  std::string output, device = "cpu";
  std::vector<std::string> only;

  bool on_device() const { return device != "cpu"; }
  bool simulated() const { return device == "sim"; }
  Device where() const { return simulated() ? Device::sim() : on_device() ? Device::cuda() : Device::cpu(); }
};

// The exit code, where the program is to end at once.
std::optional<int> parse(int argc, char** argv, Flags& flags);

}  // namespace rondo::tune
