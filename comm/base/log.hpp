// SPDX-License-Identifier: Apache-2.0
// One logger of our own, to stderr; spdlog inside log.cpp alone. RONDO_LOG = trace|debug|info|warn|error|off.
// Nothing here throws: most of it is said where something else has just failed, memory at times.
#pragma once
#include <fmt/format.h>

#include "comm/base/log_line.hpp"

namespace rondo::log {

void say(Level level, fmt::string_view format, fmt::format_args args) noexcept;

template <class... Args>
void debug(fmt::format_string<Args...> format, const Args&... args) noexcept {
  if (enabled(Level::debug)) say(Level::debug, format, fmt::make_format_args(args...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, const Args&... args) noexcept {
  if (enabled(Level::info)) say(Level::info, format, fmt::make_format_args(args...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, const Args&... args) noexcept {
  if (enabled(Level::warn)) say(Level::warn, format, fmt::make_format_args(args...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, const Args&... args) noexcept {
  if (enabled(Level::error)) say(Level::error, format, fmt::make_format_args(args...));
}

}  // namespace rondo::log
