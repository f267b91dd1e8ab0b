// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <new>

#include "comm/base/log.hpp"

namespace rondo::log {

void say(Level level, fmt::string_view format, fmt::format_args args) noexcept {
  try {
    write(level, fmt::vformat(format, args));
  } catch (const std::bad_alloc&) {
    std::array<char, 1000> line;
    const auto end = fmt::vformat_to_n(line.data(), line.size(), format, args).size;
    write(level, {line.data(), std::min(end, line.size())});
  }
}

}  // namespace rondo::log
