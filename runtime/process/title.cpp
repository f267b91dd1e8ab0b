// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/title.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>
#include <string>

namespace rondo::process {
namespace {

constexpr std::size_t kNameBytes = 16;

// The words of the command line, one behind the other, as the kernel reads them for others; empty: not known.
std::span<char> command_line() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  constexpr int kBegin = 48, kEnd = 49, kFirst = 3;  // as proc(5) counts them; the first behind the name
  std::uintptr_t begin = 0, end = 0;
  std::string field;
  for (int i = kFirst; i <= kEnd && fields >> field; ++i) {
    if (i == kBegin) begin = std::strtoull(field.c_str(), nullptr, 10);
    if (i == kEnd) end = std::strtoull(field.c_str(), nullptr, 10);
  }
  if (begin == 0 || end <= begin) return {};
  return {reinterpret_cast<char*>(begin), end - begin};  // NOLINT(performance-no-int-to-ptr): the kernel's word for it
}

struct Title {
  std::array<char, kNameBytes> name{};
  std::string words;
};
Title& before() {
  static Title title;
  return title;
}

void write_words(const std::string& words) {
  const std::span<char> place = command_line();
  if (place.empty()) return;
  const std::size_t count = std::min(words.size(), place.size() - 1);
  std::memcpy(place.data(), words.data(), count);
  std::fill(place.begin() + static_cast<std::ptrdiff_t>(count), place.end(), '\0');
}

}  // namespace

void set_title(const char* title) {
  ::prctl(PR_GET_NAME, before().name.data());
  const std::span<char> place = command_line();
  before().words.assign(place.begin(), place.end());
  ::prctl(PR_SET_NAME, title);
  write_words(title);
}

void reset_title() {
  ::prctl(PR_SET_NAME, before().name.data());
  write_words(before().words);
}

}  // namespace rondo::process
