// SPDX-License-Identifier: Apache-2.0
// What this host's memory can do, as the measure of collectives whose wire it is.
#pragma once
#include <cstddef>
#include <vector>

namespace rondo::bench {

// Bytes read and written in a second, 1e9 of them, when these CPUs together copy arrays of 256 MiB past the caches: the
// median of several copies. Takes 0.2 s and 512 MiB.
double copy_gbps_of_cpus(const std::vector<int>& cpus);

// Of the largest cache that a core of this host has; 32 MiB where the system does not tell.
std::size_t largest_cache_bytes();

}  // namespace rondo::bench
