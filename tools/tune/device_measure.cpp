// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/device_measure.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/cell_bench.hpp"

namespace rondo::tune {
namespace {

bench::Flags flags_for(Device device, bool captured) {
  bench::Flags flags;
  flags.device = device;
  flags.iterations = flags.simulated() ? 2 : 20;
  flags.batches = flags.simulated() ? 1 : 5;
  flags.replays = captured ? (flags.simulated() ? 1 : 5) : 0;
  return flags;
}

bench::Cell cell_for(const Communicator& communicator, const Cell& cell) {
  const auto what = std::find_if(bench::kCases.begin(), bench::kCases.end(),
                                 [&](const bench::Case& one) { return one.collective == cell.collective; });
  bench::Cell made{.what = &*what, .rank = communicator.rank(), .world_size = communicator.world_size()};
  if (made.row().rooted) made.root = 0;
  made.count = bench::count_for(*what, cell.bytes, made.dtype, made.world_size);
  return made;
}

}  // namespace

std::vector<Took> measure_on_device(Communicator& communicator, bool captured, std::span<const Cell> cells) {
  const auto site = bench::Site::make(communicator);
  const bench::Flags flags = flags_for(communicator.device(), captured);
  std::vector<Took> all;
  for (const Cell& cell : cells) {
    const bench::Cell made = cell_for(communicator, cell);
    const bench::Measurement m = bench::CellBench(communicator, *site, flags, made, false).run();
    if (m.wrong() != 0) {
      throw Error(ErrorCode::system, fmt::format("{} of {} bytes by {} {} gave {} wrong values", made.row().name,
                                                 made.bytes(), m.kernel, m.algorithm, m.wrong()));
    }
    all.push_back({m.time_us.median, fmt::format("{} {}", m.kernel, m.algorithm)});
  }
  return all;
}

}  // namespace rondo::tune
