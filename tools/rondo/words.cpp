// SPDX-License-Identifier: Apache-2.0
#include "tools/rondo/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>

namespace rondo::records {

std::string list_of(const std::vector<int>& ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : ",", ranks[i]);
    if (end > i + 1) out += fmt::format("{}{}", end == i + 2 ? "," : "-", ranks[end - 1]);
    i = end;
  }
  return out;
}
std::string named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", list_of(ranks));
}

std::string duration(double us) {
  us = std::max(us, 0.0);
  if (us < 1000) return fmt::format("{:.0f} us", us);
  if (us < 1'000'000) return fmt::format("{:.1f} ms", us / 1000);
  return fmt::format("{:.1f} s", us / 1'000'000);
}

std::string clock_time(double us, const char* format) {
  const auto seconds = static_cast<std::time_t>(std::floor(us / 1'000'000));
  std::tm local{};
  char text[64] = "";
  if (::localtime_r(&seconds, &local) != nullptr) std::strftime(text, sizeof text, format, &local);
  return fmt::format("{}.{:03}", text, static_cast<int>((us - 1e6 * static_cast<double>(seconds)) / 1000));
}

std::string how_it_ended(const RankEnd& end) {
  if (!end.exit_code) return "has not ended";
  if (*end.signal != 0)
    return fmt::format("killed by signal {} ({})", *end.signal, ::strsignal(static_cast<int>(*end.signal)));
  return fmt::format("exited with code {}", *end.exit_code);
}

}  // namespace rondo::records
