// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace rondo::tune {
namespace {

using comm::Tuning;
using comm::TuningField;
using kernels::Pattern;
using kernels::TunerRow;

constexpr std::uint64_t kLinkSizes[] = {64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20};
constexpr std::pair<Pattern, Collective> kTunedPatterns[] = {{Pattern::all_reduce, Collective::all_reduce},
                                                             {Pattern::reduce, Collective::reduce},
                                                             {Pattern::broadcast, Collective::broadcast},
                                                             {Pattern::all_gather, Collective::all_gather},
                                                             {Pattern::reduce_scatter, Collective::reduce_scatter}};

// Candidates take turns, so that what disturbs the machine for a while disturbs all of them. By candidate and cell.
std::vector<std::vector<double>> in_turns(int rounds, std::span<const Tuning> candidates, bool over_sockets,
                                          std::span<const Cell> cells, const Measure& measure) {
  std::vector<std::vector<std::vector<double>>> samples(candidates.size(),
                                                        std::vector<std::vector<double>>(cells.size()));
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      const auto times = measure(candidates[c], over_sockets, cells);
      for (std::size_t cell = 0; cell < cells.size(); ++cell) samples[c][cell].push_back(times[cell]);
    }
  }
  std::vector<std::vector<double>> medians;
  for (const auto& candidate : samples) {
    medians.emplace_back();
    for (const auto& times : candidate) medians.back().push_back(median(times));
  }
  return medians;
}

// How many times faster, in the geometric mean.
double gain(std::span<const double> before, std::span<const double> after) {
  double sum = 0;
  for (std::size_t i = 0; i < before.size(); ++i) sum += std::log(before[i] / after[i]);
  return std::exp(sum / static_cast<double>(before.size()));
}

std::vector<Cell> cells_of(const TuningField& field) {
  std::vector<Cell> cells;
  for (const Collective collective : field.trial.collectives) {
    for (const std::uint64_t bytes : field.trial.sizes) {
      cells.push_back({collective, bytes, field.trial.buffers == comm::TuningTrial::Buffers::windows});
    }
  }
  return cells;
}

void try_field(const TuningField& field, Tuning& tuning, int rounds, const Measure& measure, const Say& say) {
  std::vector<Tuning> candidates{tuning};  // first as it is
  for (const std::uint64_t value : field.trial.values) {
    if (value == tuning.*field.value) continue;
    candidates.push_back(tuning);
    comm::set_value(candidates.back(), field.value, value);
  }
  const auto times = in_turns(rounds, candidates, false, cells_of(field), measure);
  std::size_t best = 0;
  for (std::size_t c = 1; c < candidates.size(); ++c) {
    if (gain(times[0], times[c]) > std::max(gain(times[0], times[best]), kWorthwhile)) best = c;
  }
  tuning = candidates[best];
  say(best == 0 ? fmt::format("{} stays {}", field.name, comm::bytes_text(tuning.*field.value))
                : fmt::format("{} becomes {}: {:.2f} times as fast", field.name, comm::bytes_text(tuning.*field.value),
                              gain(times[0], times[best])));
}

// Rows that give each size its fastest algorithm; neighbours that agree share one, limits lie half-way between sizes.
std::vector<TunerRow> rows_of(Pattern pattern, std::span<const std::string_view> fastest) {
  std::vector<TunerRow> rows;
  for (std::size_t i = 0; i < fastest.size(); ++i) {
    const bool last = i + 1 == fastest.size();
    if (!last && fastest[i] == fastest[i + 1]) continue;
    const std::size_t limit = last ? kernels::kAnyBytes
                                   : static_cast<std::size_t>(std::sqrt(static_cast<double>(kLinkSizes[i]) *
                                                                        static_cast<double>(kLinkSizes[i + 1])));
    const auto& row = kernels::algorithm_row(kernels::find_algorithm(pattern, fastest[i]));
    rows.push_back({pattern, row.canonical_order, limit, kernels::kAnyWorld, row.name});
  }
  return rows;
}

void try_algorithms(Pattern pattern, Collective collective, Tuning& tuning, int rounds, const Measure& measure,
                    const Say& say) {
  std::vector<Cell> cells;
  for (const std::uint64_t bytes : kLinkSizes) cells.push_back({collective, bytes});
  std::vector<Tuning> candidates{tuning};
  std::vector<std::string_view> names{""};
  for (int id = 0; id < kernels::kAlgorithmCount; ++id) {
    const auto& row = kernels::algorithm_row(id);
    if (row.pattern != pattern) continue;
    candidates.push_back(tuning);
    candidates.back().links.push_back({pattern, row.canonical_order, kernels::kAnyBytes, kernels::kAnyWorld, row.name});
    names.push_back(row.name);
  }
  const auto times = in_turns(rounds, candidates, true, cells, measure);
  std::vector<std::string_view> fastest;
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    const int built_in = kernels::choose_algorithm(pattern, cells[cell].bytes, kernels::kAnyWorld, false);
    std::size_t best = 0;
    for (std::size_t c = 1; c < candidates.size(); ++c) {
      if (times[c][cell] * (best == 0 ? kWorthwhile : 1.0) < times[best][cell]) best = c;
    }
    fastest.push_back(best == 0 ? kernels::algorithm_row(built_in).name : names[best]);
  }
  for (const TunerRow& row : rows_of(pattern, fastest)) {
    say(fmt::format("over links, {} of up to {} by {}", kernels::row_of(pattern).name,
                    row.max_bytes == kernels::kAnyBytes ? "any size" : fmt::format("{} bytes", row.max_bytes),
                    row.algorithm));
    tuning.links.push_back(row);
  }
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool Scope::covers(std::string_view name) const {
  return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
}

bool Scope::includes(const TuningField& field, const Say& say) const {
  if (!field.trial.is_tried() || !covers(field.name)) return false;
  const bool matters = world_size >= field.trial.least_ranks && world_size <= field.trial.most_ranks;
  if (!matters && !only.empty()) say(fmt::format("{} makes no difference among {} ranks", field.name, world_size));
  return matters;
}

Tuning search(const Scope& scope, const Measure& measure, const Say& say) {
  Tuning tuning;
  for (const TuningField& field : comm::tuning_fields()) {
    const bool of_host = field.trial.buffers != comm::TuningTrial::Buffers::device;
    if (of_host && scope.includes(field, say)) try_field(field, tuning, scope.rounds, measure, say);
  }
  if (!scope.covers(comm::kLinksName)) return tuning;
  for (const auto& [pattern, collective] : kTunedPatterns) {
    try_algorithms(pattern, collective, tuning, scope.rounds, measure, say);
  }
  return tuning;
}

}  // namespace rondo::tune
