// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include <rondo/rondo.hpp>

namespace consumer {

// A random sequence of `steps` calls on the world and on groups split from it. Every rank of the world calls it with
// the same seed and step count. Throws at the first wrong result, saying which call it was.
void run_sequence(rondo::Communicator& world, std::uint64_t seed, int steps);

}  // namespace consumer
