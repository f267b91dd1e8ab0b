// SPDX-License-Identifier: Apache-2.0
#include "tests/tree/lint.hpp"

namespace rondo::tree {

std::string strip(const std::string& text, bool keep_strings) {
  enum class In { code, line_comment, block_comment, literal } in = In::code;
  std::string out;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    const bool digit_separator = c == '\'' && i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0;
    if (c == '\n') {
      out += c;
      if (in != In::block_comment) in = In::code;  // literals end with their line; raw strings are not understood
    } else if (in == In::code && c == '/' && (next == '/' || next == '*')) {
      in = next == '/' ? In::line_comment : In::block_comment;
      ++i;
    } else if (in == In::code) {
      if ((c == '"' || c == '\'') && !digit_separator) {
        in = In::literal;
        quote = c;
      }
      if (in == In::code || keep_strings) out += c;
    } else if (in == In::block_comment && c == '*' && next == '/') {
      in = In::code;
      ++i;
    } else if (in == In::literal) {
      if (keep_strings) out += c;
      if (c == '\\') {
        if (keep_strings) out += next;
        ++i;
      } else if (c == quote) {
        in = In::code;
      }
    }
  }
  return out;
}

}  // namespace rondo::tree
