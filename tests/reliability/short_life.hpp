// SPDX-License-Identifier: Apache-2.0
// One short life (mortal.cpp) in which one process is killed at one moment, and what was wrong with it.
#pragma once
#include <string>
#include <vector>

#include "tests/process/secret_file.hpp"
#include "tests/reliability/empty_host.hpp"

namespace rondo::test {

inline constexpr int kLifeRanks = 4, kLifeJoiner = 4, kLifeServer = 5;  // as victims

struct LifePlace {
  const char *name, *transport;
  bool two_nodes, has_server;  // else rank 0 serves
};
inline constexpr LifePlace kLifePlaces[] = {
    {"shm", "shm", false, false}, {"tcp", "tcp", false, true}, {"nodes", "", true, true}};

struct Moment {
  std::string phase;
  const LifePlace* place = nullptr;
  int victim = 0;
  unsigned long call = 0;  // 0: nobody is killed
  std::string replay() const;
};

struct LifeEnd {
  unsigned long moments = 0;      // of the phase, of the victim
  std::string where{};            // it was killed
  std::vector<double> told_ms{};  // from the kill to a survivor's first error
  double longest_ms = 0;          // from the kill until the last survivor has ended
  std::vector<std::string> wrong{}, silent{}, hung{}, left{};
};

LifeEnd live_shortly(const Moment& moment, const EmptyHost& host, const SecretFile& secret);

}  // namespace rondo::test
