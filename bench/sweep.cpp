// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <stdexcept>

#include "bench/cell_bench.hpp"
#include "bench/gather.hpp"
#include "bench/host_memory.hpp"

namespace rondo::bench {
namespace {

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

// The memory that is the ranks' wire, as the measure of their time.
struct Wire {
  MemoryRates rates;       // zeros: they share none
  double least_bytes = 0;  // what moves less is in the host's caches, where copies of large arrays say nothing
  bool is_device = false;

  // What part of the time the same bytes would take: copied, or those that are read, or written, alone; 0: not known.
  double share(const Measurement& m, const Cell& cell, bool in_place) const {
    const Traffic traffic = traffic_of(cell, in_place, is_device && m.algorithm == "ring");
    if (rates.copy <= 0 || m.time_us.median <= 0 || traffic.bytes() < least_bytes) return 0;
    return least_us(traffic, rates) / m.time_us.median;
  }
};

// So many times what the host's largest cache holds must move before caches do not matter.
constexpr double kPastCaches = 4;

double least_bytes_of_bound(const Flags& flags) {
  return flags.device.kind == Device::Kind::cpu ? kPastCaches * static_cast<double>(largest_cache_bytes()) : 0;
}

bool is_sized(const Case& what) { return row_of(what.collective).send != Extent::none; }

bool any_is_large(std::vector<Cell> cells, std::size_t bytes, double least_bytes) {
  return std::any_of(cells.begin(), cells.end(), [&](Cell& cell) {
    cell.count = count_for(*cell.what, bytes, cell.dtype, cell.world_size);
    return traffic_of(cell, false, false).bytes() >= least_bytes;
  });
}

Measurement measure(Communicator& communicator, Site& site, const Flags& flags, const Cell& cell, bool in_place,
                    const Wire& wire) {
  Measurement m;
  try {
    m = CellBench(communicator, site, flags, cell, in_place).run();
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(
        fmt::format("rank {} has no memory for the buffers of {} bytes; choose a smaller -e", cell.rank, cell.bytes()));
  }
  m.share_of_bound = wire.share(m, cell, in_place);
  return m;
}

// Every size once, and every kind of cell of it. Returns the wrong values that this rank found.
std::uint64_t run_cycle(Communicator& communicator, Site& site, const Flags& flags, const std::vector<Cell>& cells,
                        const std::vector<std::size_t>& sizes, const Wire& wire, Report* report) {
  std::uint64_t wrong = 0;
  const auto self = static_cast<std::size_t>(communicator.rank());
  for (const std::size_t bytes : sizes) {
    for (Cell cell : cells) {
      const Case& what = *cell.what;
      if (is_sized(what)) cell.count = count_for(what, bytes, cell.dtype, cell.world_size);
      Row row{.cell = cell, .out_of_place = measure(communicator, site, flags, cell, false, wire)};
      if (what.in_place) row.in_place = measure(communicator, site, flags, cell, true, wire);
      if (flags.checks > 0) {
        wrong += row.out_of_place.wrong_by_rank[self] + (row.in_place ? row.in_place->wrong_by_rank[self] : 0);
      }
      if (report != nullptr) report->row(row);
    }
  }
  return wrong;
}

}  // namespace

std::uint64_t sweep(Communicator& communicator, const Case& what, const Flags& flags, Report* report) {
  const std::vector<Cell> cells = kinds(communicator, what, flags);
  const bool sized = is_sized(what);
  const std::vector<std::size_t> sizes = sized ? flags.sizes() : std::vector<std::size_t>{0};
  const auto site = Site::make(communicator);
  const double least_bytes = least_bytes_of_bound(flags);
  const Surroundings surroundings =
      survey(communicator, *site, sized && any_is_large(cells, sizes.back(), least_bytes));
  const Wire wire{surroundings.shared_memory(), least_bytes, !surroundings.devices.empty()};
  if (report != nullptr) report->begin(surroundings);
  std::uint64_t wrong = 0;
  for (int cycle = 0; cycle < flags.cycles; ++cycle) {
    wrong += run_cycle(communicator, *site, flags, cells, sizes, wire, report);
  }
  if (report != nullptr) report->end();
  meet(communicator);  // a launcher may stop the others when one fails; rank 0 has printed by now
  return wrong;
}

}  // namespace rondo::bench
