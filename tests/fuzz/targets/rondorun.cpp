// SPDX-License-Identifier: Apache-2.0
// What rondorun reads of its ranks: what they draw on their screens.
#include <algorithm>

#include "tests/fuzz/targets.hpp"
#include "tools/rondorun/fold.hpp"
#include "tools/rondorun/screen_text.hpp"

namespace rondo::fuzz {

using namespace launcher;

// As a terminal would: the same whatever pieces it comes in, and no line holds what moves the cursor.
void run_screen(Bytes input) {
  Script script(input);
  const std::size_t piece = 1 + script.byte();
  const std::string text = text_of(script.rest());
  const auto lines_of = [&](std::size_t size) {
    std::vector<std::string> lines;
    const auto note = [&](std::string_view line) { lines.emplace_back(line); };
    ScreenText screen;
    for (std::size_t from = 0; from < text.size(); from += size)
      screen.take(std::string_view(text).substr(from, size), note);
    expect(screen.has_row() == !screen.row().empty(), "a row is there and empty");
    screen.finish(note);
    return lines;
  };
  const auto lines = lines_of(piece);
  expect(lines == lines_of(std::max<std::size_t>(1, text.size())), "pieces change what is seen");
  Fold fold;
  for (std::size_t i = 0; i < lines.size(); ++i)
    fold.add(static_cast<int>(i % 3), "[" + std::to_string(i % 3) + "] ", lines[i]);
  std::size_t told = 0;
  fold.release(true, [&](std::string_view, std::string_view) { ++told; });
  expect(told <= lines.size() && (told > 0 || lines.empty()), "folding adds lines, or takes all");
}

std::vector<std::string> screen_seeds() {
  return {"\x10one\ntwo\r\nthree", "\x01\x1b[31mred\x1b[0m\rblack\n", "\x02 50%|###  |\r 60%|#### |\r100%\n",
          "\x05\x1b]0;title\x07text\x1b[2Kmore\x1b[1A\x08\x08"};
}

}  // namespace rondo::fuzz
