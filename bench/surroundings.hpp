// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a run are and which devices they share, known to every rank.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/flags.hpp"
#include "bench/site.hpp"

namespace rondo::bench {

struct SharedDevice {
  nlohmann::json what;     // name, uuid, driver; "copy_gbps" where it was measured
  std::vector<int> ranks;  // of the communicator
};

struct Surroundings {
  std::vector<nlohmann::json> ranks;  // host, pid, node, local rank, device
  std::vector<SharedDevice> devices;  // none on the CPU; matched by host and UUID

  // Bytes read and written per second when all ranks share one GPU's memory; 0: they do not, or it is no GPU.
  double shared_copy_gbps() const;
};

// Collective. Measures the copies of each GPU by its first rank, one GPU after the other.
Surroundings survey(Communicator& communicator, Site& site);

}  // namespace rondo::bench
