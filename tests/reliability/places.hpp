// SPDX-License-Identifier: Apache-2.0
// How the four ranks of a host reach each other.
#pragma once

namespace rondo::test {

struct Place {
  const char *name, *transport, *node;  // the shell knows the node from the rank
};
inline constexpr Place kPlaces[] = {{"shm", "shm", ""},
                                    {"tcp", "tcp", ""},
                                    {"two nodes", "", "node$((RANK / 2))"},
                                    {"one rank elsewhere", "", "node$((RANK > 0))"}};
inline constexpr int kRanks = 4;

}  // namespace rondo::test
