// SPDX-License-Identifier: Apache-2.0
// From a Call to an algorithm of the kernels' table, and its run on host memory. The one file that instantiates the
// algorithms for HostPrimitives.
#pragma once
#include <chrono>
#include <string_view>

#include <rondo/communicator.hpp>

#include "comm/host_primitives.hpp"

namespace rondo::comm {

struct Chosen {
  int row = 0;            // of the algorithm table
  std::string_view name;  // in logs and flight records
};

// invalid_argument when no algorithm of any collective has that name.
void check_algorithm_name(std::string_view name);

// Every rank comes to the same choice from what they agree on. `wanted`: a name from the configuration, used where it
// implements the collective.
Chosen choose_algorithm(const Call& call, const Team& team, Determinism determinism, std::string_view wanted);

void run_algorithm(const Chosen& chosen, const Call& call, const Signature& signature, HostPrimitives& primitives,
                   const Team& team, std::chrono::milliseconds timeout);

}  // namespace rondo::comm
