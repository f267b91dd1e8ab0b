// SPDX-License-Identifier: Apache-2.0
// A cell of the table is the median of its samples, told with their spread; never the best one.
#pragma once
#include <vector>

namespace rondo::bench {

struct Statistics {
  double median = 0, p10 = 0, p90 = 0, min = 0, max = 0;
  // Width of the middle eight tenths, as a part of the median.
  double spread() const { return median > 0 ? (p90 - p10) / median : 0; }
};

// Percentiles by linear interpolation between the two nearest samples. At least one sample.
Statistics statistics_of(std::vector<double> samples);

}  // namespace rondo::bench
