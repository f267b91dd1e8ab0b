// SPDX-License-Identifier: Apache-2.0
#include "comm/node/policy/reason.hpp"

#include <fmt/format.h>

#include "comm/setup/tuning.hpp"

namespace rondo::comm {

std::string in_words(const Reason& reason) {
  std::string text(reason.why);
  if (!reason.threshold.empty()) text += fmt::format("; {} is {}", reason.threshold, bytes_text(reason.value));
  const auto add = [&](std::string_view way, std::string_view obstacle) {
    if (!obstacle.empty()) text += fmt::format("; not {}: {}", way, obstacle);
  };
  add("board", reason.not_board);
  add("two_level", reason.not_two_level);
  add("straight", reason.not_straight);
  return text;
}

}  // namespace rondo::comm
