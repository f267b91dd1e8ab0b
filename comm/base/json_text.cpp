// SPDX-License-Identifier: Apache-2.0
#include "comm/base/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace rondo {
namespace {

// Bytes of the character that begins there, or 0: it is not UTF-8. (Overlong forms and surrogates are not told apart.)
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const std::size_t bytes = byte(0) < 0x80                      ? 1
                            : byte(0) >= 0xc2 && byte(0) < 0xe0 ? 2
                            : (byte(0) & 0xf0) == 0xe0          ? 3
                            : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                                                                : 0;
  if (bytes > text.size()) return 0;
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t bytes = character_bytes(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else if (bytes == 0) {
      out += "\\ufffd";
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out + '"';
}

}  // namespace rondo
