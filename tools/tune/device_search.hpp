// SPDX-License-Identifier: Apache-2.0
// Finds the thresholds of devices: each call is measured on either side of one, and the threshold is put where the
// sides change places.
#pragma once
#include <functional>

#include "tools/tune/search.hpp"

namespace rondo::tune {

struct Took {
  double us = 0;
  std::string kernel;  // that ran, and its algorithm
};
// As Measure; `captured`: in graphs.
using DeviceMeasure =
    std::function<std::vector<Took>(const comm::Tuning& tuning, bool captured, std::span<const Cell> cells)>;

// Says of every cell what ran on either side, and how long it took.
comm::Tuning search_device(const Scope& scope, const DeviceMeasure& measure, const Say& say);

}  // namespace rondo::tune
