// SPDX-License-Identifier: Apache-2.0
#include "comm/base/plain_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace rondo {
namespace {

constexpr std::size_t kMostBytes = 4000;
constexpr std::size_t kEscapedBytes = 4;  // \xNN

bool is_plain(char c) { return static_cast<unsigned char>(c) >= ' ' && c != '\x7f'; }
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80; }  // a character of UTF-8

// So many bytes of it as leave no character in half.
std::string_view beginning_of(std::string_view text, std::size_t bytes) {
  while (bytes > 0 && bytes < text.size() && continues(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

std::string plain_text(std::string_view text) {
  if (text.size() <= kMostBytes && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string plain;
  std::size_t taken = 0;
  for (; taken < text.size() && plain.size() + kEscapedBytes <= kMostBytes; ++taken) {
    const char c = text[taken];
    plain += is_plain(c) ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  if (taken == text.size()) return plain;
  plain = beginning_of(plain + text[taken], plain.size());
  return fmt::format("{}… ({} bytes in all)", plain, text.size());
}

void complain(std::string_view program, std::string_view sentence) {
  fmt::print(stderr, "{}: {}\n", program, plain_text(sentence));
}

}  // namespace rondo
