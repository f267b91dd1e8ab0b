// SPDX-License-Identifier: Apache-2.0
// What is shown of text that was written for a terminal, in whatever pieces it comes.
#include "tools/rondorun/screen_text.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tools/rondorun/screen.hpp"

namespace {

using namespace rondo::launcher;

struct Shown {
  std::vector<std::string> lines;
  std::string row;
  bool operator==(const Shown&) const = default;
};

std::ostream& operator<<(std::ostream& stream, const Shown& shown) {
  for (const auto& line : shown.lines) stream << '<' << line << ">\n";
  return stream << '(' << shown.row << ')';
}

Shown shown(const std::string& text, std::size_t piece) {
  ScreenText screen;
  Shown result;
  for (std::size_t at = 0; at < text.size(); at += piece)
    screen.take(text.substr(at, piece), [&](std::string_view line) { result.lines.emplace_back(line); });
  result.row = screen.row();
  return result;
}

}  // namespace

TEST_CASE("a screen's text: lines, carriage returns, styles, and nothing that moves the cursor elsewhere") {
  struct Row {
    const char* text;
    Shown expected;
  };
  const std::vector<Row> rows{
      {"one\ntwo\nthr", {{"one", "two"}, "thr"}},
      {"\n\n", {{"", ""}, ""}},
      {"lines\r\nof\r\r\nDOS\r\n", {{"lines", "of", "DOS"}, ""}},
      {"\r 10%\r 20%\r 30%", {{}, " 30%"}},
      {" 10%\r 20%\r", {{}, " 20%"}},
      {"\r 99%\r100%\ndone\n", {{"100%", "done"}, ""}},
      {" 50%\r      \r", {{}, ""}},
      {" 50%\r      \rdone\n", {{"done"}, ""}},
      {" 50%\r\033[Kdone\n", {{"done"}, ""}},
      {" 50%\033[2K\033[1Gdone\n", {{"done"}, ""}},
      {"\033[2K\033[G50%", {{}, "50%"}},
      {"\033[31mred\033[0m plain\n", {{"\033[31mred\033[0m plain\033[0m"}, ""}},
      {"\033[31mred\nstill\033[m\nplain\n", {{"\033[31mred\033[0m", "\033[31mstill\033[m\033[0m", "plain"}, ""}},
      {"\033[1;32m10%\r20%", {{}, "\033[1;32m20%\033[0m"}},
      {"\033[A\033[2Jup\033[10;20H\0337\033c\033(B\n", {{"up"}, ""}},
      {"\033]0;a title\a\033]8;;http://x\033\\link\n", {{"link"}, ""}},
      {"\033[>4;2mmode\n", {{"mode"}, ""}},
      {"broken \033[12\nnext\n", {{"broken ", "next"}, ""}},
      {"a\tb \xe2\x96\x88|\v\f\n", {{"a\tb \xe2\x96\x88|"}, ""}},
      {"working |\b/\b-", {{}, "working |\b/\b-"}},
      {"   \033[1m  ", {{}, ""}},
  };
  for (const auto& [text, expected] : rows) {
    for (const std::size_t piece : {1, 2, 3, 1000}) {
      CAPTURE(text, piece);
      CHECK(shown(text, piece) == expected);
    }
  }
}

TEST_CASE("a screen's text: a row is short, and cut between letters and styles") {
  std::string bars;
  while (bars.size() < 10'000) bars += "\xe2\x96\x88";
  const auto row = shown(bars, 1000).row;
  CHECK(row.size() <= 4096);
  CHECK(row.size() > 4000);
  CHECK(row.size() % 3 == 0);
  std::string styles = "x";
  while (styles.size() < 10'000) styles += "\033[31m";
  const auto styled = shown(styles, 1000).row;
  CHECK((styled.size() - 1) % 5 == 4);  // and the one of four letters that closes it
}

TEST_CASE("a screen: whole lines above the rows, which are drawn where they were") {
  Screen screen(true);
  CHECK(screen.frame("a line\n", {}, 24) == "a line\n");
  CHECK(screen.frame("", {"one"}, 24) == "\033[?7lone\033[?7h");
  CHECK(screen.frame("", {"one"}, 24).empty());
  CHECK(screen.frame("", {"two", "three"}, 24) == "\r\033[J\033[?7ltwo\nthree\033[?7h");
  CHECK(screen.frame("above\n", {"four"}, 24) == "\r\033[1A\033[Jabove\n\033[?7lfour\033[?7h");
  CHECK(screen.frame("last\n", {}, 24) == "\r\033[Jlast\n");
  CHECK(screen.frame("", {"1", "2", "3", "4"}, 4) == "\033[?7lrondorun: 2 more lines like these\n3\n4\033[?7h");
  Screen paper(false);
  CHECK(paper.frame("a line\n", {"one"}, 24) == "a line\none\n");
  CHECK(paper.frame("", {"one", "two"}, 24) == "two\n");
}
