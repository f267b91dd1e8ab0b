// SPDX-License-Identifier: Apache-2.0
#include "comm/base/plain_text.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace rondo {
namespace {

constexpr std::size_t kEscapedBytes = 4;  // \xNN

// C0, DEL, and C1, which in UTF-8 is 0xc2 and a byte up to 0x9f: terminals take U+009B for the beginning of an order.
bool is_plain(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const bool begins_c1 = byte(at) == 0xc2 && at + 1 < text.size() && byte(at + 1) >= 0x80 && byte(at + 1) < 0xa0;
  const bool ends_c1 = at > 0 && byte(at - 1) == 0xc2 && byte(at) >= 0x80 && byte(at) < 0xa0;
  return byte(at) >= ' ' && byte(at) != 0x7f && !begins_c1 && !ends_c1;
}
bool is_plain(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (!is_plain(text, i)) return false;
  return true;
}
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80; }  // a character of UTF-8

// So many bytes of it as leave no character in half.
std::string_view beginning_of(std::string_view text, std::size_t bytes) {
  while (bytes > 0 && bytes < text.size() && continues(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

std::string plain_text(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes && is_plain(text)) return std::string(text);
  std::string plain;
  std::size_t taken = 0;
  for (; taken < text.size() && plain.size() + kEscapedBytes <= most_bytes; ++taken) {
    plain += is_plain(text, taken) ? std::string(1, text[taken])
                                   : fmt::format("\\x{:02x}", static_cast<unsigned char>(text[taken]));
  }
  if (taken == text.size()) return plain;
  plain = beginning_of(plain + text[taken], plain.size());
  return fmt::format("{}… ({} bytes in all)", plain, text.size());
}

void complain(std::string_view program, std::string_view sentence) {
  fmt::print(stderr, "{}: {}\n", program, plain_text(sentence));
}

}  // namespace rondo
