// SPDX-License-Identifier: Apache-2.0
// The bottom of a terminal, where the ranks' unfinished lines stand below all that is finished.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace rondo::launcher {

class Screen {
 public:
  // draws: the terminal's cursor can go up. Otherwise each new row is a line.
  explicit Screen(bool draws) : draws_(draws) {}
  bool draws() const { return draws_; }
  bool has_rows() const { return drawn_ > 0; }
  // What to write so that whole lines stand above the rows, and nothing else below them. Of too many rows the last
  // ones are seen.
  std::string frame(std::string_view lines, std::vector<std::string> rows, int height);

 private:
  bool draws_;
  std::size_t drawn_ = 0;  // rows on the terminal, the cursor at the end of the last
  std::vector<std::string> rows_;
};

}  // namespace rondo::launcher
