// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.hpp"

#include <algorithm>
#include <cmath>

namespace rondo::bench {
namespace {

double percentile(const std::vector<double>& sorted, double part) {
  const double position = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

}  // namespace

Statistics statistics_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {.median = percentile(samples, 0.5),
          .p10 = percentile(samples, 0.1),
          .p90 = percentile(samples, 0.9),
          .min = samples.front(),
          .max = samples.back()};
}

}  // namespace rondo::bench
