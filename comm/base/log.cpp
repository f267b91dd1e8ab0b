// SPDX-License-Identifier: Apache-2.0
#include "comm/base/log_line.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <new>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"
#include "comm/base/log_level.hpp"
#include "comm/base/plain_text.hpp"

namespace rondo::log {
namespace {

constexpr const char* kDefaultLevel = "warn";

// spdlog takes what it does not know for off.
bool is_level(const std::string& name) { return name == "off" || spdlog::level::from_str(name) != spdlog::level::off; }

// Never destroyed: threads of communicators that exit() ends may still have something to say.
spdlog::logger& logger() {
  static spdlog::logger& instance = []() -> spdlog::logger& {
    auto& made = *new spdlog::logger("rondo", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_pattern("rondo %l: %v");
    const std::string level = env("RONDO_LOG").value_or(kDefaultLevel);
    made.set_level(spdlog::level::from_str(is_level(level) ? level : kDefaultLevel));
    return made;
  }();
  return instance;
}
spdlog::level::level_enum of(Level level) { return static_cast<spdlog::level::level_enum>(level); }

}  // namespace

void check_level() {
  const std::string level = env("RONDO_LOG").value_or(kDefaultLevel);
  if (is_level(level)) return;
  throw Error(ErrorCode::invalid_argument,
              "RONDO_LOG=" + level + " is not a level: trace, debug, info, warn, error, off, or unset");
}

bool enabled(Level level) noexcept {
  try {
    return logger().should_log(of(level));
  } catch (const std::bad_alloc&) {
    return level >= Level::warn;
  }
}

void write(Level level, std::string_view line) noexcept {
  try {
    logger().log(of(level), plain_text(line));
  } catch (const std::bad_alloc&) {
    const std::string_view name = spdlog::level::to_string_view(of(level)).data();
    std::array<iovec, 5> parts;
    std::size_t used = 0;
    for (const std::string_view part :
         {std::string_view("rondo "), name, std::string_view(": "), line, std::string_view("\n")})
      parts[used++] = {const_cast<char*>(part.data()), part.size()};
    [[maybe_unused]] const auto written = ::writev(STDERR_FILENO, parts.data(), static_cast<int>(used));
  }
}

}  // namespace rondo::log
