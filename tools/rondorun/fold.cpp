// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/fold.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "tools/rondorun/cores.hpp"

namespace rondo::launcher {
namespace {

constexpr std::size_t kFew = 2;  // ranks, whose lines are left as they are

// A rank that names itself says the same as another that does.
std::string without_own_rank(std::string_view text, int rank) {
  const std::string own = fmt::format("rank {}", rank);
  std::string result(text);
  for (auto at = result.find(own); at != std::string::npos; at = result.find(own, at + 1)) {
    const std::size_t end = at + own.size();
    if (end == result.size() || std::isdigit(static_cast<unsigned char>(result[end])) == 0)
      result.replace(at, own.size(), "rank N");
  }
  return result;
}

}  // namespace

void Fold::add(int rank, std::string_view prefix, std::string_view text) {
  bytes_ += prefix.size() + text.size();
  lines_.push_back({.rank = rank, .prefix = std::string(prefix), .text = std::string(text)});
}

void Fold::release(bool folded, const OnLine& on_line) {
  bytes_ = 0;
  const auto lines = std::exchange(lines_, {});
  std::map<std::pair<int, std::string>, int> times;                  // a rank has said something
  std::map<std::pair<std::string, int>, std::vector<int>> ranks_of;  // what they say, for the how manieth time
  std::vector<std::pair<std::string, int>> said;
  for (const Line& line : lines) {
    said.emplace_back(without_own_rank(line.text, line.rank), 0);
    said.back().second = ++times[{line.rank, said.back().first}];
    if (folded && line.rank >= 0) ranks_of[said.back()].push_back(line.rank);
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto ranks = ranks_of.find(said[i]);
    if (lines[i].rank < 0 || ranks == ranks_of.end() || ranks->second.size() <= kFew) {
      on_line(lines[i].prefix, lines[i].text);
    } else if (ranks->second.front() == lines[i].rank) {
      on_line(fmt::format("[{}] {} ranks report: ", cpu_list(ranks->second), ranks->second.size()), said[i].first);
    }
  }
}

}  // namespace rondo::launcher
