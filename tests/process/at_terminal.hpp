// SPDX-License-Identifier: Apache-2.0
// A program at a pseudo-terminal, and what a person would see there.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tests/process/running.hpp"

namespace rondo::test {

// The screen, and what has scrolled out of it, after these bytes. Styles are left out, blanks at the end of lines too.
// Throws on an escape sequence that the launcher has no reason to write.
std::vector<std::string> screen_after(const std::string& bytes, int rows, int columns);

// The program's controlling terminal, and all three streams, is a pseudo-terminal of ours.
class AtTerminal {
 public:
  struct How {
    // Added to this process's; with it the launcher has nothing of its own to say.
    std::vector<std::string> environment{"TERM=xterm", "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES="};
    int rows = 24, columns = 80;
  };
  explicit AtTerminal(const std::vector<std::string>& command) : AtTerminal(command, How{}) {}
  AtTerminal(const std::vector<std::string>& command, const How& how);
  ~AtTerminal();  // kills it

  void type(const std::string& keys) const;
  void resize(int rows, int columns);
  // All bytes that were shown until `text` came `count` times, or until the end of the program when it is empty.
  std::string read_until(const std::string& text, std::size_t count = 1);
  // The screen, once it satisfies `as_expected`; at the deadline whatever it is then.
  std::vector<std::string> screen_when(const std::function<bool(const std::vector<std::string>&)>& as_expected);
  std::vector<std::string> screen_at_end();  // of the program
  int wait();

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);  // false: nothing more came
  std::vector<std::string> screen() const { return screen_after(shown_, how_.rows, how_.columns); }

  How how_;
  Fd master_;
  pid_t pid_ = -1;
  std::string shown_;
};

}  // namespace rondo::test
