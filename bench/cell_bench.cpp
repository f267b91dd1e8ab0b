// SPDX-License-Identifier: Apache-2.0
#include "bench/cell_bench.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/gather.hpp"

namespace rondo::bench {
namespace {

constexpr double kBudgetSeconds = 0.4;  // of a cell; batches beyond the third stop there
constexpr int kLeastBatches = 3;
constexpr int kMostSets = 64;
constexpr std::size_t kCaches = 4;  // together, the sets of a rank hold so many times what the device's cache does

int sets_for(const Flags& flags, std::size_t cache_bytes, std::size_t bytes) {
  if (flags.sets > 0) return flags.sets;
  if (cache_bytes == 0) return 1;
  if (flags.simulated()) return 2;
  return static_cast<int>(
      std::clamp<std::size_t>(kCaches * cache_bytes / std::max<std::size_t>(bytes, 1), 1, kMostSets));
}

}  // namespace

CellBench::CellBench(Communicator& communicator, Site& site, const Flags& flags, const Cell& cell, bool in_place)
    : communicator_(communicator),
      site_(site),
      flags_(flags),
      cell_(cell),
      in_place_(in_place),
      sets_(sets_for(flags, site.cache_bytes(), send_bytes() + recv_bytes())),
      send_(site, communicator, send_bytes(), sets_, flags.windows),
      recv_(site, communicator, recv_bytes(), sets_, flags.windows) {}

std::size_t CellBench::recv_bytes() const {
  return width() * (in_place_ ? std::max(cell_.send_count(), cell_.recv_count()) : cell_.recv_count());
}
std::byte* CellBench::input(int set) const {
  return in_place_ ? recv_.data(set) + cell_.in_place_offset(true) * width() : send_.data(set);
}
std::byte* CellBench::output(int set) const {
  return recv_.data(set) + (in_place_ ? cell_.in_place_offset(false) * width() : 0);
}

void CellBench::call(int set, int times) {
  invoke(communicator_, cell_, input(set), output(set), times, site_.stream());
  if (flags_.blocking != Blocking::no) site_.drain();
  if (flags_.blocking == Blocking::wait_and_meet) meet(communicator_);
}

Measurement CellBench::run() {
  Measurement m;
  m.sets = sets_;
  m.samples_us = time();
  m.time_us = statistics_of(m.samples_us);
  record_choice(m);
  if (m.time_us.median > 0) m.algbw_gbps = static_cast<double>(cell_.bytes()) / m.time_us.median / 1e3;
  m.busbw_gbps = m.algbw_gbps * cell_.row().busbw_factor(cell_.world_size);
  if (flags_.checks > 0) m.wrong_by_rank = check();
  return m;
}

// Microseconds of one call, a sample for each batch. Every rank makes the same number of batches.
std::vector<double> CellBench::time() {
  send_.make_ordinary();
  recv_.make_ordinary();
  // What follows may allocate and free memory of the device, which can wait for kernels of other ranks of the process,
  // as those wait for this rank: so nobody launches anything before everybody is through with it.
  meet(communicator_);
  for (int i = 0; i < flags_.warmups; ++i) call(i % sets_, 1);
  site_.drain();
  communicator_.check();
  const auto calls = [this] {
    for (int i = 0; i < flags_.iterations; ++i) call(i % sets_, flags_.aggregate);
  };
  const std::unique_ptr<Batch> batch = site_.batch(calls, flags_.replays);
  meet(communicator_);
  if (flags_.replays > 0) timed(*batch);  // a graph's first launch brings it to the device
  std::vector<double> samples{timed(*batch)};
  const int batches = agree_on_batches(samples[0]);
  while (static_cast<int>(samples.size()) < batches) samples.push_back(timed(*batch));
  meet(communicator_);
  for (double& s : samples) s *= 1e6 / flags_.iterations / flags_.aggregate;
  combine(samples);
  return samples;
}

double CellBench::timed(Batch& batch) {
  communicator_.barrier(site_.stream());
  const double seconds = batch.seconds();
  communicator_.check();
  return flags_.cpu_time ? batch.host_seconds() : seconds;
}

int CellBench::agree_on_batches(double first_seconds) const {
  const std::vector<double> all = gather_value(communicator_, first_seconds);
  const double longest = *std::max_element(all.begin(), all.end()) * std::max(1, flags_.replays);
  const double affordable = kBudgetSeconds / std::max(longest, 1e-9);
  const int least = std::min(kLeastBatches, flags_.batches);
  return static_cast<int>(std::clamp(affordable, double(least), double(flags_.batches)));
}

// Of the ranks' samples, what -a asks for.
void CellBench::combine(std::vector<double>& samples) const {
  const auto all = gather_values(communicator_, std::span<const double>(samples));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::vector<double> ranks;
    for (const auto& rank : all) ranks.push_back(rank.at(i));
    const auto [shortest, longest] = std::minmax_element(ranks.begin(), ranks.end());
    const double mean = std::accumulate(ranks.begin(), ranks.end(), 0.0) / static_cast<double>(ranks.size());
    const double chosen[] = {ranks[0], mean, *shortest, *longest};
    samples[i] = chosen[flags_.average];
  }
}

// Of the cell, and not of what the ranks tell each other between batches, by an all_gather of the host's.
bool CellBench::is_record_of_call(const nlohmann::json& call) const {
  if (call.value("collective", "") != name_of(cell_.what->collective)) return false;
  if (call.value("kernel", "").empty() != (communicator_.device().kind == Device::Kind::cpu)) return false;
  const bool is_sized = cell_.row().send != Extent::none;
  return !is_sized ||
         (call.value("count", std::size_t{0}) == cell_.count && call.value("dtype", "") == name_of(cell_.dtype));
}

// As the library recorded it; several calls of a batch take the same one.
void CellBench::record_choice(Measurement& m) const {
  const auto record = nlohmann::json::parse(communicator_.flight_record(), nullptr, false);
  if (record.is_discarded() || !record.contains("calls")) return;
  for (auto call = record["calls"].rbegin(); call != record["calls"].rend(); ++call) {
    if (!is_record_of_call(*call)) continue;
    m.algorithm = call->value("algorithm", "");
    m.kernel = call->value("kernel", "");
    return;
  }
}

void CellBench::load(int set, std::uint32_t seed) {
  send_.poison(set);
  recv_.poison(set);
  if (!cell_.has_input()) return;
  const Source source{cell_.rank, 0, seed};
  site_.write(input(set), cell_.send_count() * width(), [&](std::byte* to) {
    if (cell_.row().reduces) {
      fill_values(to, cell_.send_count(), cell_.reduction(), source);
    } else {
      fill_bits(to, cell_.send_count(), cell_.dtype, source);
    }
  });
}

std::uint64_t CellBench::wrong_after_one_call(int set, std::uint32_t seed) {
  load(set, seed);
  call(set, 1);
  site_.drain();
  communicator_.check();
  std::uint64_t wrong = send_.count_touched_guard_bytes(set) + recv_.count_touched_guard_bytes(set);
  for (const Stretch& s : expected_output(cell_, seed)) {
    const std::byte* got = site_.read(output(set) + s.offset * width(), s.count * width());
    wrong += s.source.rank < 0 ? count_wrong_values(got, s.count, cell_.reduction(), s.source)
                               : count_wrong_bits(got, s.count, cell_.dtype, s.source);
  }
  return wrong;
}

std::vector<std::uint64_t> CellBench::check() {
  std::uint64_t mine = 0;
  for (int i = 0; i < flags_.checks; ++i) mine += wrong_after_one_call(i % sets_, static_cast<std::uint32_t>(i + 1));
  return gather_value(communicator_, mine);
}

}  // namespace rondo::bench
