// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "bench/buffers.hpp"
#include "bench/machine.hpp"

namespace rondo::bench {
namespace {

constexpr double kBudgetSeconds = 0.4;  // of a cell; batches beyond the third stop there
constexpr int kLeastBatches = 3;

using Clock = std::chrono::steady_clock;

class Bench {
 public:
  Bench(Communicator& communicator, const Flags& flags, const Cell& cell, bool in_place)
      : communicator_(communicator),
        flags_(flags),
        cell_(cell),
        in_place_(in_place),
        send_(communicator, width() * (in_place ? 0 : cell.send_count()), flags.windows),
        recv_(communicator, width() * (in_place ? std::max(cell.send_count(), cell.recv_count()) : cell.recv_count()),
              flags.windows) {}

  Measurement run() {
    Measurement m;
    m.samples_us = time();
    m.time_us = statistics_of(m.samples_us);
    if (m.time_us.median > 0) m.algbw_gbps = static_cast<double>(cell_.bytes()) / m.time_us.median / 1e3;
    m.busbw_gbps = m.algbw_gbps * cell_.row().busbw_factor(cell_.world_size);
    if (flags_.checks > 0) m.wrong_by_rank = check();
    return m;
  }

 private:
  std::size_t width() const { return size_of(cell_.dtype); }
  std::byte* input() const { return in_place_ ? recv_.data() + cell_.in_place_offset(true) * width() : send_.data(); }
  std::byte* output() const { return recv_.data() + (in_place_ ? cell_.in_place_offset(false) * width() : 0); }
  void call(int times) { invoke(communicator_, cell_, input(), output(), times); }

  double batch();
  std::vector<double> time();
  std::vector<std::uint64_t> check();
  std::uint64_t wrong_after_one_call(std::uint32_t seed);
  void load(std::uint32_t seed);

  Communicator& communicator_;
  const Flags& flags_;
  const Cell& cell_;
  bool in_place_;
  GuardedBuffer send_, recv_;
};

// Seconds of one call on this rank.
double Bench::batch() {
  communicator_.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < flags_.iterations; ++i) call(flags_.aggregate);
  const std::chrono::duration<double> passed = Clock::now() - begin;
  return passed.count() / flags_.iterations / flags_.aggregate;
}

// Microseconds of one call, a sample for each batch. Every rank makes the same number of batches.
std::vector<double> Bench::time() {
  std::memset(send_.data(), 0, send_.bytes());  // zeros stay zeros, however often they are reduced in place
  std::memset(recv_.data(), 0, recv_.bytes());
  for (int i = 0; i < flags_.warmups; ++i) call(1);
  std::vector<double> samples{batch()};
  double longest = samples[0];
  communicator_.all_reduce(std::span(&longest, 1), ReduceOp::max);
  const double affordable = kBudgetSeconds / std::max(longest * flags_.iterations * flags_.aggregate, 1e-9);
  const int least = std::min(kLeastBatches, flags_.batches);
  const int batches = static_cast<int>(std::clamp(affordable, double(least), double(flags_.batches)));
  while (static_cast<int>(samples.size()) < batches) samples.push_back(batch());
  for (double& s : samples) s *= 1e6;
  if (flags_.average == 0) {
    communicator_.broadcast(samples, 0);
  } else {
    const ReduceOp::Kind kinds[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max};
    communicator_.all_reduce(samples, kinds[flags_.average]);
  }
  return samples;
}

void Bench::load(std::uint32_t seed) {
  send_.poison();
  recv_.poison();
  if (!cell_.has_input()) return;
  const Source source{cell_.rank, 0, seed};
  if (cell_.row().reduces) {
    fill_values(input(), cell_.send_count(), cell_.reduction(), source);
  } else {
    fill_bits(input(), cell_.send_count(), cell_.dtype, source);
  }
}

std::uint64_t Bench::wrong_after_one_call(std::uint32_t seed) {
  load(seed);
  call(1);
  std::uint64_t wrong = send_.count_touched_guard_bytes() + recv_.count_touched_guard_bytes();
  for (const Stretch& s : expected_output(cell_, seed)) {
    const std::byte* got = output() + s.offset * width();
    wrong += s.source.rank < 0 ? count_wrong_values(got, s.count, cell_.reduction(), s.source)
                               : count_wrong_bits(got, s.count, cell_.dtype, s.source);
  }
  return wrong;
}

std::vector<std::uint64_t> Bench::check() {
  std::vector<std::uint64_t> mine{0};
  for (int i = 0; i < flags_.checks; ++i) mine[0] += wrong_after_one_call(static_cast<std::uint32_t>(i + 1));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(cell_.world_size));
  communicator_.all_gather(mine, all);
  return all;
}

std::vector<int> roots(const Case& what, const Flags& flags, int world_size) {
  if (!row_of(what.collective).rooted) return {-1};
  if (!flags.all_roots) {
    if (flags.root < 0 || flags.root >= world_size) {
      throw UsageError(fmt::format("-r {} is not a rank below {}", flags.root, world_size));
    }
    return {flags.root};
  }
  std::vector<int> all(static_cast<std::size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Cells but for their size, in the order of the rows. Where all were asked for, pairs that mean nothing are left out.
std::vector<Cell> kinds(const Communicator& communicator, const Case& what, const Flags& flags) {
  std::vector<Cell> all;
  const bool reduces = row_of(what.collective).reduces;
  const std::vector<ReduceOp::Kind> none{ReduceOp::sum};
  for (const DataType dtype : flags.dtypes) {
    for (const ReduceOp::Kind op : reduces ? flags.ops : none) {
      if (reduces && !is_supported(dtype, op)) continue;
      for (const int root : roots(what, flags, communicator.world_size())) {
        all.push_back({.what = &what,
                       .rank = communicator.rank(),
                       .world_size = communicator.world_size(),
                       .root = root,
                       .dtype = dtype,
                       .op = op});
      }
    }
  }
  if (all.empty()) {
    throw UsageError(
        fmt::format("-o {} is not defined for -d {}", table_name(flags.ops[0]), table_name(flags.dtypes[0])));
  }
  return all;
}

std::vector<std::string> placement(Communicator& communicator) {
  const std::string mine = describe_rank(communicator.rank(), communicator.node(), communicator.local_rank());
  std::vector<std::string> all;
  for (const auto& bytes : communicator.all_gather_bytes(std::as_bytes(std::span(mine)))) {
    all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return all;
}

}  // namespace

std::uint64_t sweep(Communicator& communicator, const Case& what, const Flags& flags, Report* report) {
  const std::vector<Cell> cells = kinds(communicator, what, flags);
  const bool sized = what.collective != Collective::barrier;
  const std::vector<std::size_t> sizes = sized ? flags.sizes() : std::vector<std::size_t>{0};
  const std::vector<std::string> where = placement(communicator);
  if (report != nullptr) report->begin(where);
  std::uint64_t wrong = 0;
  const auto self = static_cast<std::size_t>(communicator.rank());
  for (const std::size_t bytes : sizes) {
    for (Cell cell : cells) {
      if (sized) cell.count = count_for(what, bytes, cell.dtype, cell.world_size);
      Row row{.cell = cell, .out_of_place = Bench(communicator, flags, cell, false).run()};
      if (what.in_place) row.in_place = Bench(communicator, flags, cell, true).run();
      if (flags.checks > 0) {
        wrong += row.out_of_place.wrong_by_rank[self] + (row.in_place ? row.in_place->wrong_by_rank[self] : 0);
      }
      if (report != nullptr) report->row(row);
    }
  }
  if (report != nullptr) report->end();
  communicator.barrier();  // a launcher may stop the others when one fails; rank 0 has printed by now
  return wrong;
}

}  // namespace rondo::bench
