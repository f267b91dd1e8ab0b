// SPDX-License-Identifier: Apache-2.0
// Where lines of the log go. Without fmt: spdlog may have brought another one, and log.cpp sees that alone.
#pragma once
#include <string_view>

namespace rondo::log {

enum class Level { trace, debug, info, warn, error };

bool enabled(Level level) noexcept;
void write(Level level, std::string_view line) noexcept;  // any thread; whole lines

}  // namespace rondo::log
