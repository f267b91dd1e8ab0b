// SPDX-License-Identifier: Apache-2.0
// What this host's memory can do, as the measure of collectives whose wire it is.
#pragma once
#include <cstddef>
#include <vector>

namespace rondo::bench {

// In 1e9 bytes a second; 0: not measured.
struct MemoryRates {
  double copy = 0;   // read and written, as many of each
  double load = 0;   // read alone; what is read alone, or almost, may be slower than copies, and so may
  double store = 0;  // what is written: where cores reach their memory, there are two ways of unequal width
};

// Of these CPUs together, on arrays of 256 MiB past the caches: medians of several passes. Takes 0.3 s and 512 MiB.
MemoryRates memory_rates_of_cpus(const std::vector<int>& cpus);

// Of the largest cache that a core of this host has; 32 MiB where the system does not tell.
std::size_t largest_cache_bytes();

}  // namespace rondo::bench
