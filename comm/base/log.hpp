// SPDX-License-Identifier: Apache-2.0
// One logger of our own, to stderr; spdlog inside log.cpp alone. RONDO_LOG = trace|debug|info|warn|error|off.
#pragma once
#include <fmt/format.h>

#include <string_view>

namespace rondo::log {

enum class Level { trace, debug, info, warn, error };

bool enabled(Level level);
void write(Level level, std::string_view line);  // any thread; whole lines

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::warn)) write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::error)) write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace rondo::log
