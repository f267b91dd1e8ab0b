// SPDX-License-Identifier: Apache-2.0
#include "comm/base/duration.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.hpp>

namespace rondo {

std::chrono::milliseconds checked_duration(std::string_view name, std::chrono::milliseconds given) {
  if (given.count() > 0) return std::min(given, kForEver);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} of {} ms: it takes at least a millisecond, and milliseconds::max() waits for ever", name,
                          given.count()));
}

}  // namespace rondo
