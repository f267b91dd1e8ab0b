// SPDX-License-Identifier: Apache-2.0
// Finds a tuning by trying: one field after the other, then the algorithm for each size over links. What is of devices
// is device_search.hpp's.
#pragma once
#include <functional>

#include "comm/setup/tuning.hpp"
#include "tools/tune/measure.hpp"

namespace rondo::tune {

// Times of `cells` under a tuning; every rank is told the same, so that every rank searches alike.
using Measure =
    std::function<std::vector<double>(const comm::Tuning& tuning, bool over_sockets, std::span<const Cell>)>;
using Say = std::function<void(const std::string& line)>;

// A value takes the default's place when its cells are, in the geometric mean, at least that much faster: noise alone
// changes nothing.
inline constexpr double kWorthwhile = 1.03;

struct Scope {
  int world_size = 2, rounds = 3;         // rounds: turns that each value gets
  std::vector<std::string> only{};        // names of fields, and "links"; empty: everything
  std::uint64_t most_bytes = UINT64_MAX;  // of calls on a device
  bool covers(std::string_view name) const;
  // Asked for, and one of these ranks' matters; says so where it is asked for by name and is none.
  bool includes(const comm::TuningField& field, const Say& say) const;
};
double median(std::vector<double> values);
comm::Tuning search(const Scope& scope, const Measure& measure, const Say& say);

}  // namespace rondo::tune
