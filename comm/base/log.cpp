// SPDX-License-Identifier: Apache-2.0
#include "comm/base/log_line.hpp"

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

bool enabled(Level level) { return logger().should_log(of(level)); }
void write(Level level, std::string_view line) { logger().log(of(level), plain_text(line)); }

}  // namespace rondo::log
