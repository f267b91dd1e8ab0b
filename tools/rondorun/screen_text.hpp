// SPDX-License-Identifier: Apache-2.0
// What a screen shows of one stream that writes to a terminal: lines, of which the last may be drawn over and over.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace rondo::launcher {

inline constexpr std::size_t kLongestLine = std::size_t{4} << 20;  // then it is broken in two

// Colours and other styles pass, each line closed in itself. What moves the cursor to other lines does not, as those
// may be other ranks'. A carriage return, or what stands for one, begins the line anew.
class ScreenText {
 public:
  using OnLine = std::function<void(std::string_view)>;  // without its newline
  void take(std::string_view text, const OnLine& on_line);
  void finish(const OnLine& on_line);  // the unfinished line, if something is to be seen of it

  std::string row() const;  // the unfinished line; empty: nothing is to be seen
  bool has_row() const;
  bool drawn_over() const { return redrawn_; }  // it had a carriage return

 private:
  enum class Within { text, escape, sequence, name, string };
  void take_plain(std::string_view text, const OnLine& on_line);
  void take_one(char letter, const OnLine& on_line);
  void end_sequence(char last);
  void put(char letter);
  void complete(const OnLine& on_line);
  void begin_anew();
  std::string_view visible() const;

  Within within_ = Within::text;
  std::string sequence_;                 // the parameters of an escape sequence so far
  std::string line_;                     // since its last beginning; may end in carriage returns
  std::string style_;                    // what was on at the beginning of line_
  bool redrawn_ = false, plain_ = true;  // plain: line_ has neither styles nor carriage returns
};

}  // namespace rondo::launcher
