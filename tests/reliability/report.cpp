// SPDX-License-Identifier: Apache-2.0
#include "tests/reliability/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rondo::test {

double Times::at(double share) const {
  if (all_.empty()) return 0;
  auto sorted = all_;
  const auto last = static_cast<double>(sorted.size() - 1);
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(std::ceil(share * last));
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::string Times::head(int width) {
  return fmt::format("{:>{}} {:>8} {:>8} {:>8}", "times", width, "p50 ms", "p99", "most");
}
std::string Times::row(int width) const {
  return fmt::format("{:{}} {:8.1f} {:8.1f} {:8.1f}", count(), width, at(0.5), at(0.99), at(1));
}

void Report::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  std::cout << line << "\n" << std::flush;
}

void Report::verdict(bool held, const std::string& sentence) {
  say(fmt::format("{}: {}", held ? "held" : "BROKEN", sentence));
  const std::lock_guard lock(mutex_);
  if (!held) ++broken_;
}
void Report::at_most(const std::string& what, double value, double limit, const std::string& unit) {
  const std::string sentence = fmt::format("{} {:.4g} {}, at most {:.4g}", what, value, unit, limit);
  if (busy_) return say("not judged: " + sentence);
  verdict(value <= limit, sentence);
}
void Report::none(const std::string& what, std::size_t value, std::size_t of) {
  verdict(value == 0 && of > 0, fmt::format("{} {} of {}", what, value, of));
}

}  // namespace rondo::test
