// SPDX-License-Identifier: Apache-2.0
// What an example says of a command line that is wrong, and of what else goes wrong: one sentence, in which words that
// somebody has given hold nothing that a terminal obeys.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace examples {

inline void complain(std::string_view program, std::string_view sentence) {
  std::string plain;
  unsigned char before = 0;
  for (const char letter : sentence) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool is_c1 = before == 0xc2 && byte >= 0x80 && byte < 0xa0;  // in UTF-8
    plain += byte < ' ' || byte == 0x7f || is_c1 ? fmt::format("\\x{:02x}", byte) : std::string(1, letter);
    before = byte;
  }
  fmt::print(stderr, "{}: {}\n", program, plain);
}

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

}  // namespace examples
