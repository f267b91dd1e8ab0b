// SPDX-License-Identifier: Apache-2.0
#include "comm/call/choice_log.hpp"

#include <fmt/format.h>

#include <bit>

#include "comm/base/log.hpp"

namespace rondo::comm {

ChoiceLog::ChoiceLog(const Bootstrap& bootstrap)
    : speaks_(bootstrap.rank == 0 && log::enabled(log::Level::debug)),
      name_(fmt::format("{}@{}", bootstrap.name, bootstrap.generation)) {}

bool ChoiceLog::is_new(Collective collective, std::size_t bytes, std::string_view way) {
  return known_.emplace(collective, static_cast<int>(std::bit_width(bytes)), way).second;
}

void ChoiceLog::write(Collective collective, std::size_t bytes, std::string_view way, const std::string& why) const {
  log::debug("{}: {} of {} bytes takes {}: {}", name_, name_of(collective), bytes, way, why);
}

}  // namespace rondo::comm
