// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/blame.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace rondo::launcher {
namespace {

// What the library says of a rank that is not there, and what people write of one.
constexpr std::string_view kGone[] = {"left",       "has left",     "is lost",   "was lost", "is gone",
                                      "died",       "has died",     "ended",     "exited",   "was killed",
                                      "is missing", "did not come", "never came"};

std::optional<int> number_at(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// What stands in brackets there, " (host a, pid 17)", with a pid in it.
pid_t take_place(std::string_view& text) {
  constexpr std::string_view kPid = "pid ";
  if (!text.starts_with(" (")) return 0;
  const auto end = text.find(')');
  if (end == text.npos) return 0;
  std::string_view place = text.substr(0, end);
  text.remove_prefix(end + 1);
  const auto pid = place.rfind(kPid);
  if (pid == place.npos) return 0;
  place.remove_prefix(pid + kPid.size());
  return number_at(place).value_or(0);
}

bool says_gone(std::string_view text) {
  if (!text.starts_with(' ')) return false;
  text.remove_prefix(1);
  return std::ranges::any_of(kGone, [&](std::string_view words) {
    return text.starts_with(words) &&
           (text.size() == words.size() || !std::isalnum(static_cast<unsigned char>(text[words.size()])));
  });
}

}  // namespace

std::vector<Blamed> blamed_in(std::string_view words) {
  constexpr std::string_view kWord = "rank ";
  std::vector<Blamed> result;
  for (auto at = words.find(kWord); at != words.npos; at = words.find(kWord)) {
    words.remove_prefix(at + kWord.size());
    std::string_view rest = words;
    const auto rank = number_at(rest);
    if (!rank) continue;
    const pid_t pid = take_place(rest);
    if (says_gone(rest)) result.push_back({*rank, pid});
  }
  return result;
}

}  // namespace rondo::launcher
