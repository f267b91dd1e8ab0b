// SPDX-License-Identifier: Apache-2.0
// What this host's memory can do, as the measure of collectives whose wire it is.
#pragma once
#include <cstddef>
#include <vector>

namespace rondo::bench {

// In 1e9 bytes a second; 0: not measured. What is only read, or only written, may move slower than what is copied.
struct MemoryRates {
  double copy = 0;  // read and written, as many of each
  double load = 0;
  double store = 0;
};

// Of these CPUs together, on arrays of 256 MiB past the caches: medians of several passes. Takes 512 MiB.
MemoryRates memory_rates_of_cpus(const std::vector<int>& cpus);

// Of the largest cache that a core of this host has; 32 MiB where the system does not tell.
std::size_t largest_cache_bytes();

}  // namespace rondo::bench
