// SPDX-License-Identifier: Apache-2.0
#include "comm/base/log_line.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "comm/base/env.hpp"

namespace rondo::log {
namespace {

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("rondo", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_pattern("rondo %l: %v");
    made.set_level(spdlog::level::from_str(env("RONDO_LOG").value_or("warn")));
    return made;
  }();
  return instance;
}
spdlog::level::level_enum of(Level level) { return static_cast<spdlog::level::level_enum>(level); }

}  // namespace

bool enabled(Level level) { return logger().should_log(of(level)); }
void write(Level level, std::string_view line) { logger().log(of(level), line); }

}  // namespace rondo::log
