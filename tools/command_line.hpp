// SPDX-License-Identifier: Apache-2.0
// What a program says of a command line that is wrong.
#pragma once
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <optional>
#include <string_view>

#include "comm/base/plain_text.hpp"

namespace rondo {

// The exit code, where the program is to end at once: its help was asked for, or the line is wrong.
inline std::optional<int> parse(CLI::App& app, std::string_view program, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    complain(program, fmt::format("{} (--help lists the flags)", error.what()));
    return 2;
  }
}

}  // namespace rondo
