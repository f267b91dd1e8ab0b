// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <stdexcept>

#include <rondo/error.hpp>

namespace rondo::fuzz {
namespace {

constexpr std::size_t kLongestSentence = 4096;

void check_sentence(const Error& error) {
  const std::string sentence = error.what();
  expect(!sentence.empty(), "an error without a sentence");
  expect(sentence.size() <= kLongestSentence, "a sentence of " + std::to_string(sentence.size()) + " bytes");
  expect(is_harmless(sentence) && sentence.find('\n') == sentence.npos,
         "a sentence with control characters: " + sentence);
  const auto code = static_cast<int>(error.error_code());
  expect(code >= static_cast<int>(ErrorCode::invalid_argument) && code <= static_cast<int>(ErrorCode::corrupt_message),
         "an error of code " + std::to_string(code));
}

}  // namespace

const Target* find_target(std::string_view name) {
  const auto found = std::ranges::find(targets(), name, &Target::name);
  return found == targets().end() ? nullptr : &*found;
}

void expect(bool holds, const std::string& sentence) {
  if (!holds) throw std::logic_error(sentence);
}

bool is_harmless(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    const bool is_c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if ((byte < ' ' && byte != '\n') || byte == 0x7f || is_c1) return false;
  }
  return true;
}

bool accepts(const std::function<void()>& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    check_sentence(error);
    return false;
  }
}

}  // namespace rondo::fuzz
