// SPDX-License-Identifier: Apache-2.0
// From a Call to an algorithm of the kernels' table, and its run on host memory. The one file that instantiates the
// algorithms for HostPrimitives.
#pragma once
#include <chrono>
#include <string_view>

#include <rondo/communicator.hpp>

#include "comm/call/host_primitives.hpp"
#include "comm/call/shape.hpp"
#include "kernels/algorithms/table.hpp"

namespace rondo::comm {

struct Chosen {
  int row = 0;            // of the algorithm table
  std::string_view name;  // in logs and flight records
  std::string_view why{};
};

// The board (node/ways/board_collectives.hpp) is no row of the table: it does not move steps over links.
inline constexpr Chosen kBoard{-1, "board"};
// Whoever can meet there does, unless a name from the configuration says otherwise.
bool prefers_board(std::string_view wanted);

// Two levels (hierarchy/two_level.hpp), the same.
inline constexpr Chosen kTwoLevel{-2, "two_level"};

// invalid_argument when no algorithm of any collective has that name.
void check_algorithm_name(std::string_view name);

// Every rank comes to the same choice from what they agree on: the algorithm that config names, where it implements the
// collective; else the first row that fits of the tuning file's; else of the built-in ones.
Chosen choose_algorithm(const Call& call, const Team& team, Determinism determinism, const Config& config);
// Without a name, and among so many ranks. `canonical`: only rows that fold all inputs at once, in rank order.
Chosen choose_row(const CallShape& shape, int world_size, bool canonical, const Tuning& tuning);
void run_row(const Chosen& chosen, HostPrimitives& primitives, const kernels::Work& work);

void run_algorithm(const Chosen& chosen, const Call& call, const Signature& signature, HostPrimitives& primitives,
                   const Team& team, std::chrono::milliseconds timeout);

}  // namespace rondo::comm
