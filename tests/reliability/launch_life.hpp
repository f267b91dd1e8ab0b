// SPDX-License-Identifier: Apache-2.0
// One short job under rondorun, of whose own processes one is killed at one moment, and what was wrong with it.
#pragma once
#include "tests/reliability/short_life.hpp"

namespace rondo::test {

inline constexpr const char* kLaunch = "launch";                    // as a phase
inline constexpr int kLauncher = 6, kWitness = 7, kSupervisor = 8;  // as victims; of node 0, where there are two

LifeEnd launch_shortly(const Moment& moment, const EmptyHost& host, const SecretFile& secret);

}  // namespace rondo::test
