// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "tools/rondo/live.hpp"
#include "tools/rondorun/terminal.hpp"

namespace rondo::launcher {
namespace {

constexpr std::chrono::seconds kBetweenLooks{1}, kBetweenLines{10};
constexpr std::size_t kMostGroups = 8;

std::vector<std::string> groups_in_short(const records::Folder& folder) {
  auto lines = records::groups_of(folder);
  if (lines.size() <= kMostGroups) return lines;
  const std::size_t others = lines.size() - kMostGroups;
  lines.resize(kMostGroups);
  lines.push_back(fmt::format("and {} more like these", others));
  return lines;
}

}  // namespace

void Watch::start() {
  job_.draws = job_.draws && voice_.err().draws();
  look_in(kBetweenLooks);
}

void Watch::look_in(process::EventLoop::Clock::duration delay) {
  loop_.at(process::EventLoop::Clock::now() + delay, [this] {
    if (job_.runs()) return job_.look([this](const records::Snapshot& snapshot) { show(snapshot); });
    draw({});
    look_in(kBetweenLooks);
  });
}

void Watch::show(const records::Snapshot& snapshot) {
  std::vector<std::string> rows;
  try {
    const records::Folder folder = records::read_snapshot(snapshot);
    const auto size = size_of(voice_.err().fd());
    rows = records::table_of(folder);
    if (!job_.draws || !size || 2 * rows.size() > size->ws_row) rows = groups_in_short(folder);
    if (job_.draws) rows.insert(rows.begin(), records::heading_of(folder));
  } catch (const std::exception& error) {
    rows = {fmt::format("cannot be shown: {}", error.what())};
  }
  if (job_.draws)
    draw(job_.runs() ? std::move(rows) : std::vector<std::string>{});
  else if (job_.runs())
    for (const std::string& row : rows) voice_.say("watch: " + row);
  look_in(job_.draws ? kBetweenLooks : kBetweenLines);
}

void Watch::draw(std::vector<std::string> rows) {
  if (!job_.draws) return;
  voice_.err().show_below(std::move(rows));
  voice_.err().flush();
}

}  // namespace rondo::launcher
