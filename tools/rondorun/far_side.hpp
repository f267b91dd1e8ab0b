// SPDX-License-Identifier: Apache-2.0
// What a rondorun with --hosts and those that it starts by ssh say to each other. It writes an order to the other's
// standard input, so that no word of it is on a command line, and then one byte for each signal; the end of that input
// is its own end. The other one says on stderr that it is there, and at the end its exit code, each in a line of its
// own that no program writes.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/rondorun/options.hpp"
#include "tools/rondorun/order.hpp"

namespace rondo::launcher {

inline constexpr std::string_view kFarSide = "--far-side";  // the one argument of a rondorun that is started so

// In main(): obeys the order that comes on standard input. `run` gets the command line, and Options to begin with.
int far_side(const std::function<int(const std::vector<std::string>& words, Options options)>& run);

// What a far side says of itself in a line of its stderr.
struct FarSaid {
  std::optional<std::string> version;  // it is there
  std::optional<int> exit_code;        // it has ended
  std::string odd{};                   // it has, with this for a code, which is none
};
std::optional<FarSaid> said_by_far_side(std::string_view line);

}  // namespace rondo::launcher
