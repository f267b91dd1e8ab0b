// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/device_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rondo::tune {
namespace {

using comm::Tuning;
using comm::TuningField;

std::vector<Cell> cells_of(const TuningField& field, std::uint64_t most_bytes) {
  std::vector<Cell> cells;
  for (const Collective collective : field.trial.collectives) {
    for (const std::uint64_t bytes : field.trial.sizes) {
      if (bytes <= most_bytes) cells.push_back({collective, bytes});
    }
  }
  return cells;
}

// A cell on either side of a threshold.
struct Sides {
  Cell cell;
  Took within{}, beyond{};  // the call is no longer than the threshold; it is longer. Medians
  std::vector<double> within_us{}, beyond_us{};

  bool differ() const { return within.kernel != beyond.kernel; }
  void add(const Took& in, const Took& out) {
    within_us.push_back(in.us);
    beyond_us.push_back(out.us);
    within = {median(within_us), in.kernel};
    beyond = {median(beyond_us), out.kernel};
  }
};

Tuning with(Tuning tuning, const TuningField& field, std::uint64_t value) {
  for (const auto& other : field.trial.meanwhile) comm::set_value(tuning, other.value, other.is);
  comm::set_value(tuning, field.value, value);
  return tuning;
}

// A round more of each cell whose sides differ. They take turns, so that what disturbs the machine for a while disturbs
// both.
class Measuring {
 public:
  Measuring(const TuningField& field, const Tuning& tuning, const DeviceMeasure& measure)
      : captured_(field.trial.captured),
        within_(with(tuning, field, field.trial.values.back())),
        beyond_(with(tuning, field, field.trial.values.front())),
        measure_(measure) {}

  void add_round(std::vector<Sides>& all) {
    std::vector<Cell> cells;
    for (const Sides& sides : all) cells.push_back(sides.cell);
    if (cells.empty()) return;
    const std::vector<Took> within = measure_(within_, captured_, cells), beyond = measure_(beyond_, captured_, cells);
    for (std::size_t i = 0; i < all.size(); ++i) all[i].add(within[i], beyond[i]);
  }

 private:
  bool captured_;
  Tuning within_, beyond_;
  const DeviceMeasure& measure_;
};

std::vector<Sides> measure_sides(const TuningField& field, const Tuning& tuning, const Scope& scope,
                                 const DeviceMeasure& measure) {
  std::vector<Sides> differ, same;
  for (const Cell& cell : cells_of(field, scope.most_bytes)) differ.push_back({.cell = cell});
  Measuring measuring(field, tuning, measure);
  for (int round = 0; round < scope.rounds; ++round) {
    measuring.add_round(differ);
    const auto end = std::stable_partition(differ.begin(), differ.end(), [](const Sides& s) { return s.differ(); });
    same.insert(same.end(), end, differ.end());
    differ.erase(end, differ.end());
  }
  differ.insert(differ.end(), same.begin(), same.end());
  return differ;
}

void tell(const TuningField& field, const Sides& sides, const Say& say) {
  const std::string call =
      fmt::format("{}: {} of {}", field.name, row_of(sides.cell.collective).name, comm::bytes_text(sides.cell.bytes));
  const auto text = [](const Took& took) { return fmt::format("{} {:.2f} us", took.kernel, took.us); };
  say(sides.differ() ? fmt::format("{}: up to it {}, beyond it {}", call, text(sides.within), text(sides.beyond))
                     : fmt::format("{}: {} on either side", call, text(sides.within)));
}

// The logarithm of the time of a call with that threshold, in the mean over calls for which it matters.
double cost(std::span<const Sides> all, std::uint64_t threshold) {
  double sum = 0, count = 0;
  for (const Sides& sides : all) {
    if (!sides.differ()) continue;
    sum += std::log(sides.cell.bytes <= threshold ? sides.within.us : sides.beyond.us);
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

void try_threshold(const TuningField& field, Tuning& tuning, const Scope& scope, const DeviceMeasure& measure,
                   const Say& say) {
  const std::vector<Sides> all = measure_sides(field, tuning, scope, measure);
  for (const Sides& sides : all) tell(field, sides, say);
  const std::uint64_t before = tuning.*field.value;
  std::uint64_t best = before;
  for (const std::uint64_t value : field.trial.values) {
    if (cost(all, value) < cost(all, best)) best = value;
  }
  const double gain = std::exp(cost(all, before) - cost(all, best));
  if (gain <= kWorthwhile) return say(fmt::format("{} stays {}", field.name, comm::bytes_text(before)));
  comm::set_value(tuning, field.value, best);
  say(fmt::format("{} becomes {}: {:.2f} times as fast", field.name, comm::bytes_text(best), gain));
}

}  // namespace

Tuning search_device(const Scope& scope, const DeviceMeasure& measure, const Say& say) {
  Tuning tuning;
  for (const TuningField& field : comm::tuning_fields()) {
    const bool of_device = field.trial.buffers == comm::TuningTrial::Buffers::device;
    if (of_device && scope.includes(field, say)) try_threshold(field, tuning, scope, measure, say);
  }
  return tuning;
}

}  // namespace rondo::tune
