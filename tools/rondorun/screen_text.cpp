// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/screen_text.hpp"

#include <algorithm>
#include <cstddef>

namespace rondo::launcher {
namespace {

constexpr std::size_t kLongestRow = 4096;  // of an unfinished line
constexpr std::size_t kLongestSequence = 64;
constexpr std::size_t kLongestStyle = 64;
constexpr char kEscape = '\033', kBell = '\a';
constexpr std::string_view kPlain = "\033[0m";

// All but what a line can hold: letters, tabs, backspaces and the bell.
bool is_control(char letter) {
  return (letter >= '\v' && letter <= '\r') || letter == '\016' || letter == '\017' || letter == kEscape;
}

std::size_t end_of_style(std::string_view text, std::size_t begin) {
  return std::min(text.find('m', begin), text.size() - 1) + 1;
}

std::string style_after(std::string style, std::string_view text) {
  for (auto at = text.find(kEscape); at != std::string_view::npos; at = text.find(kEscape, at + 1)) {
    const std::string_view one = text.substr(at, end_of_style(text, at) - at);
    if (one == "\033[m" || one.starts_with("\033[0") || style.size() + one.size() > kLongestStyle) style.clear();
    if (one != "\033[m" && one != kPlain) style += one;
  }
  return style;
}

std::string with_style(const std::string& style, std::string_view text) {
  const bool styled = !style.empty() || text.find(kEscape) != std::string_view::npos;
  return style + std::string(text) + std::string(styled ? kPlain : "");
}

bool is_blank(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == kEscape)
      i = end_of_style(text, i) - 1;
    else if (text[i] != ' ' && text[i] != '\t')
      return false;
  }
  return true;
}

// Neither within a letter nor within a style.
std::string_view shortened(std::string_view text) {
  if (text.size() <= kLongestRow) return text;
  std::size_t end = kLongestRow;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  const auto style = text.rfind(kEscape, end - 1);
  if (style != std::string_view::npos && end_of_style(text, style) > end) end = style;
  return text.substr(0, end);
}

}  // namespace

void ScreenText::take(std::string_view text, const OnLine& on_line) {
  if (within_ == Within::text && plain_ && style_.empty() && std::none_of(text.begin(), text.end(), is_control)) {
    take_plain(text, on_line);
  } else {
    for (const char letter : text) take_one(letter, on_line);
  }
  if (line_.size() > kLongestLine) complete(on_line);
}

// What nearly all text is, without a look at each letter.
void ScreenText::take_plain(std::string_view text, const OnLine& on_line) {
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    if (line_.empty()) {
      on_line(text.substr(0, end));
    } else {
      on_line(line_.append(text.substr(0, end)));
      line_.clear();
    }
    text.remove_prefix(end + 1);
  }
  line_.append(text);
}

void ScreenText::take_one(char letter, const OnLine& on_line) {
  if (letter == '\n') {  // ends a broken sequence too
    within_ = Within::text;
    return complete(on_line);
  }
  switch (within_) {
    case Within::text:
      if (letter == kEscape)
        within_ = Within::escape;
      else if (letter == '\r' || !is_control(letter))
        put(letter);
      return;
    case Within::escape:
      sequence_.clear();
      within_ = letter == '['                                                      ? Within::sequence
                : std::string_view("]P_^X").find(letter) != std::string_view::npos ? Within::string
                : letter >= ' ' && letter <= '/'                                   ? Within::name
                                                                                   : Within::text;
      return;
    case Within::sequence:
      if (letter >= '@' && letter <= '~') return end_sequence(letter);
      sequence_ += letter;
      if (letter < ' ' || sequence_.size() > kLongestSequence) within_ = Within::text;
      return;
    case Within::name:  // of a set of letters
      within_ = Within::text;
      return;
    case Within::string:  // a window's title and the like
      if (letter == kBell) within_ = Within::text;
      if (letter == kEscape) within_ = Within::name;
      return;
  }
}

void ScreenText::end_sequence(char last) {
  within_ = Within::text;
  if (last == 'm' && sequence_.find_first_not_of("0123456789;:") == std::string::npos) {
    for (const char letter : "\033[" + sequence_ + "m") put(letter);
  } else if (last == 'G' && (sequence_.empty() || sequence_ == "1")) {
    put('\r');
  } else if ((last == 'K' || last == 'J') && (sequence_ == "2" || line_.ends_with('\r'))) {
    begin_anew();
  }
}

void ScreenText::put(char letter) {
  if (letter != '\r' && line_.ends_with('\r')) begin_anew();
  if (letter == '\r') redrawn_ = true;
  if (letter == '\r' || letter == kEscape) plain_ = false;
  line_ += letter;
}

void ScreenText::begin_anew() {
  style_ = style_after(std::move(style_), line_);
  line_.clear();
  plain_ = true;
}

std::string_view ScreenText::visible() const {
  const std::string_view text = line_;
  return text.substr(0, text.find_last_not_of('\r') + 1);
}

void ScreenText::complete(const OnLine& on_line) {
  on_line(with_style(style_, visible()));
  begin_anew();
  redrawn_ = false;
}

void ScreenText::finish(const OnLine& on_line) {
  if (has_row()) complete(on_line);
  begin_anew();
}

bool ScreenText::has_row() const { return !is_blank(visible()); }

std::string ScreenText::row() const { return has_row() ? with_style(style_, shortened(visible())) : ""; }

}  // namespace rondo::launcher
