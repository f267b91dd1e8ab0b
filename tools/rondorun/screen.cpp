// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/screen.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace rondo::launcher {
namespace {

std::string erased(std::size_t rows) {
  return rows == 0 ? "" : rows == 1 ? "\r\033[J" : fmt::format("\r\033[{}A\033[J", rows - 1);
}

// Without wrapping, so that each is one row of the terminal, however wide its letters are.
std::string drawn(const std::vector<std::string>& rows) {
  return rows.empty() ? "" : fmt::format("\033[?7l{}\033[?7h", fmt::join(rows, "\n"));
}

void limit(std::vector<std::string>& rows, std::size_t most) {
  if (rows.size() <= most) return;
  const std::size_t hidden = rows.size() - most + 1;
  rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(hidden));
  rows.insert(rows.begin(), fmt::format("rondorun: {} more lines like these", hidden));
}

}  // namespace

std::string Screen::frame(std::string_view lines, std::vector<std::string> rows, int height) {
  if (!draws_) {
    std::string result(lines);
    for (const auto& row : rows)
      if (std::find(rows_.begin(), rows_.end(), row) == rows_.end()) result += row + '\n';
    rows_ = std::move(rows);
    return result;
  }
  limit(rows, static_cast<std::size_t>(std::max(2, height - 1)));
  if (lines.empty() && rows == rows_) return {};
  std::string result = erased(std::exchange(drawn_, rows.size()));
  result.append(lines).append(drawn(rows));
  rows_ = std::move(rows);
  return result;
}

}  // namespace rondo::launcher
