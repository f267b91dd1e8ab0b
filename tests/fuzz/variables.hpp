// SPDX-License-Identifier: Apache-2.0
// Variables of this process that an input sets, again and again. In storage of our own: what setenv() copies stays.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/fuzz/target.hpp"

namespace rondo::fuzz {

class ProcessVariables {
 public:
  explicit ProcessVariables(const std::vector<const char*>& names) {
    for (const char* name : names) {
      lines_.push_back(std::string(name) + "=");
      lines_.back().reserve(kMostBytes);
      names_.emplace_back(lines_.back());
    }
    for (std::string& line : lines_) ::putenv(line.data());
  }
  // A value a line, in the order of the names; an empty one counts as unset.
  void set(Bytes input) {
    std::string_view rest = as_text(input);
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const std::string_view value = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), value.size() + 1));
      lines_[i].assign(names_[i]).append(value.substr(0, kMostBytes - names_[i].size() - 1));
    }
  }

 private:
  static constexpr std::size_t kMostBytes = 4096;
  std::vector<std::string> names_;
  std::vector<std::string> lines_;
};

}  // namespace rondo::fuzz
