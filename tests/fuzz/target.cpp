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
  const bool plain =
      std::ranges::all_of(sentence, [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != '\x7f'; });
  expect(plain, "a sentence with control characters: " + sentence);
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
