// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/corpus.hpp"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <stdexcept>

namespace rondo::fuzz {
namespace {

constexpr std::size_t kEscaped = 4;  // \xNN
constexpr int kHex = 16;

bool stands_for_itself(char c, bool first) { return c > ' ' - 1 && c < '\x7f' && c != '\\' && !(first && c == '#'); }

}  // namespace

std::string to_line(std::string_view input) {
  if (input.empty()) return "\\";
  std::string line;
  for (const char c : input) {
    if (stands_for_itself(c, line.empty())) {
      line += c;
    } else {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return line;
}

std::string from_line(std::string_view line) {
  std::string input;
  if (line == "\\") return input;
  for (std::size_t at = 0; at < line.size();) {
    if (line[at] != '\\') {
      input += line[at++];
      continue;
    }
    unsigned char value = 0;
    const std::string_view code = line.substr(at, kEscaped);
    const char* const digits = code.data() + 2;
    const bool good =
        code.size() == kEscaped && code[1] == 'x' && std::from_chars(digits, digits + 2, value, kHex).ptr == digits + 2;
    if (!good) throw std::runtime_error(fmt::format("'{}' is no \\xNN", code));
    input += static_cast<char>(value);
    at += kEscaped;
  }
  return input;
}

std::vector<std::string> read_corpus(const std::filesystem::path& file) {
  std::vector<std::string> inputs;
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file.string());
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.front() != '#') inputs.push_back(from_line(line));
  }
  return inputs;
}

}  // namespace rondo::fuzz
