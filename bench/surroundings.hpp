// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a run are and which devices they share, known to every rank.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/flags.hpp"
#include "bench/host_memory.hpp"
#include "bench/site.hpp"

namespace rondo::bench {

struct SharedDevice {
  nlohmann::json what;     // name, uuid, driver; "copy_gbps" where it was measured
  std::vector<int> ranks;  // of the communicator
};

struct Surroundings {
  std::vector<nlohmann::json> ranks;  // host, pid, node, local rank, device
  std::vector<SharedDevice> devices;  // none on the CPU; matched by host and UUID

  MemoryRates host_memory{};  // where that is what the ranks share

  // Of the memory that all ranks share, a GPU's or the host's; zeros: they share none, or it was not measured.
  MemoryRates shared_memory() const;
  bool shares_host() const;  // no devices, and all ranks on one host
};

// Collective. Measures the copies of each GPU by its first rank, one GPU after the other; the host's memory by rank 0,
// with all CPUs that the ranks may use, if `host_memory` asks for it.
Surroundings survey(Communicator& communicator, Site& site, bool host_memory);

}  // namespace rondo::bench
