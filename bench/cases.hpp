// SPDX-License-Identifier: Apache-2.0
// The programs as data: one row each, everything else comes from the library's table of collectives.
#pragma once
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include <rondo/communicator.hpp>

#include "bench/host_memory.hpp"
#include "bench/pattern.hpp"

namespace rondo::bench {

struct Case {
  std::string_view program;
  Collective collective;  // send: every rank sends to the next and receives from the one before
  bool in_place;          // has an in-place form
};

inline constexpr std::array<Case, 10> kCases = {{
    {"all_gather_perf", Collective::all_gather, true},
    {"all_reduce_perf", Collective::all_reduce, true},
    {"alltoall_perf", Collective::all_to_all, false},
    {"barrier_perf", Collective::barrier, false},
    {"broadcast_perf", Collective::broadcast, true},
    {"gather_perf", Collective::gather, true},
    {"reduce_perf", Collective::reduce, true},
    {"reduce_scatter_perf", Collective::reduce_scatter, true},
    {"scatter_perf", Collective::scatter, true},
    {"sendrecv_perf", Collective::send, false},
}};

const Case& find_case(std::string_view program);  // std::out_of_range for a name that is not in the table

// One cell of a table: what is called, by whom, on how much.
struct Cell {
  const Case* what = nullptr;
  int rank = 0, world_size = 1, root = -1;
  DataType dtype = DataType::f32;
  ReduceOp::Kind op = ReduceOp::sum;
  std::size_t count = 0;  // elements, as in Call: of a block where the collective has blocks

  const CollectiveRow& row() const { return row_of(what->collective); }
  std::size_t send_count() const;
  std::size_t recv_count() const;
  std::size_t bytes() const;                // of the larger buffer of a rank
  bool has_input() const;                   // this rank's send buffer is read
  bool has_output() const;                  // this rank's receive buffer is written
  std::size_t in_place_offset(bool) const;  // elements; of send in recv (true) or of recv in send (false)
  Reduction reduction() const { return {dtype, op, world_size}; }
};

// The count whose larger buffer has at most `bytes` bytes.
std::size_t count_for(const Case& what, std::size_t bytes, DataType dtype, int world_size);

// What a rank's output must hold: stretches of other ranks' input, or of the reduction over all (source.rank -1).
struct Stretch {
  std::size_t offset = 0, count = 0;
  Source source;
};
std::vector<Stretch> expected_output(const Cell& cell, std::uint32_t seed);

// Calls the collective, `times` of them together as one group when there are several.
void invoke(Communicator& communicator, const Cell& cell, const void* send, void* recv, int times, Stream stream);

// Bytes that all ranks together must read and write when they share one memory: every input once, every output once,
// nothing for what already lies in its place. With `ring` (all_reduce alone), what the ring moves through its FIFOs.
struct Traffic {
  double read = 0, written = 0;
  double bytes() const { return read + written; }
};
Traffic traffic_of(const Cell& cell, bool in_place, bool ring);
// The longest of three times: all of it copied, what is read alone, what is written alone.
double least_us(const Traffic& traffic, const MemoryRates& rates);

}  // namespace rondo::bench
