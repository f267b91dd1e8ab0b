// SPDX-License-Identifier: Apache-2.0
// What a cell takes under a tuning: all ranks of a job measure together and learn the same times.
#pragma once
#include <span>
#include <string>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::tune {

struct Cell {
  Collective collective{};
  std::uint64_t bytes = 0;  // of a rank's larger buffer
  bool windows = false;
};

// A communicator of all ranks of `parent` that reads this text as its tuning. Sets variables of the process.
Communicator with_tuning(Communicator& parent, const std::string& text, bool over_sockets);
// The same on a device. `as_threads`: the ranks are threads of one process.
Communicator with_tuning(Communicator& parent, const std::string& text, Device device, bool as_threads);

// Seconds of one call by cell: the median over batches of what the slowest rank took. The same on every rank.
std::vector<double> measure(Communicator& communicator, std::span<const Cell> cells);

}  // namespace rondo::tune
