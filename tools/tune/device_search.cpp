// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/device_search.hpp"

#include <fmt/format.h>

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
  Took within, beyond;  // the call is no longer than the threshold; it is longer
  bool differ() const { return within.kernel != beyond.kernel; }
};

Tuning with(Tuning tuning, const TuningField& field, std::uint64_t value) {
  for (const auto& other : field.trial.meanwhile) comm::set_value(tuning, other.value, other.is);
  comm::set_value(tuning, field.value, value);
  return tuning;
}

Took median_of(const std::vector<std::vector<Took>>& rounds, std::size_t cell) {
  std::vector<double> times;
  for (const auto& round : rounds) times.push_back(round[cell].us);
  return {median(std::move(times)), rounds.front()[cell].kernel};
}

// The sides take turns, so that what disturbs the machine for a while disturbs both.
std::vector<Sides> measure_sides(const TuningField& field, const Tuning& tuning, const Scope& scope,
                                 const DeviceMeasure& measure) {
  const std::vector<Cell> cells = cells_of(field, scope.most_bytes);
  const Tuning within = with(tuning, field, field.trial.values.back()),
               beyond = with(tuning, field, field.trial.values.front());
  std::vector<std::vector<Took>> inner, outer;
  for (int round = 0; round < scope.rounds; ++round) {
    inner.push_back(measure(within, field.trial.captured, cells));
    outer.push_back(measure(beyond, field.trial.captured, cells));
  }
  std::vector<Sides> all;
  for (std::size_t i = 0; i < cells.size(); ++i) all.push_back({cells[i], median_of(inner, i), median_of(outer, i)});
  return all;
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
