// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <rondo/error.hpp>

#include "comm/base/duration.hpp"
#include "comm/setup/bootstrap.hpp"

namespace rondo {

Options checked(Options options) {
  const auto refuse = [](std::string_view field, int value, std::string_view what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("Options::{} is {}: {}", field, value, what));
  };
  options.timeout = checked_duration("Options::timeout", options.timeout);
  options.join_timeout = checked_duration("Options::join_timeout", options.join_timeout);
  if (options.device.kind > Device::Kind::sim)
    refuse("device.kind", static_cast<int>(options.device.kind), "it is cpu, cuda or sim");
  if (options.device.index < -1)
    refuse("device.index", options.device.index, "devices are numbered from 0, and -1 is of the library's choice");
  if (options.determinism > Determinism::fast)
    refuse("determinism", static_cast<int>(options.determinism), "it is deterministic, reproducible or fast");
  return options;
}

}  // namespace rondo
