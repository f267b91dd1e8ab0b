// SPDX-License-Identifier: Apache-2.0
// Worlds whose ranks use memory that peers reach, and one collective of floats with the shapes of its buffers.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "tests/comm/stress/worlds.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"

namespace rondo::test {

inline constexpr std::size_t kCount = 20'011;  // of floats: beyond what is sent in one piece, on every path

inline std::size_t as_size(int value) { return static_cast<std::size_t>(value); }

// One collective of floats, and the shapes of its buffers on this rank.
struct Shape {
  Call call;
  std::vector<std::size_t> counts;
  std::size_t send = 0, recv = 0, own_block = 0;  // elements; where this rank's block lies in the larger buffer

  Shape(Collective collective, ReduceOp op, int rank, int size, std::size_t count) {
    const CollectiveRow& row = row_of(collective);
    call = {.collective = collective, .count = count, .dtype = DataType::f32, .op = op, .root = row.rooted ? 1 : -1};
    if (row.send == Extent::counts || row.recv == Extent::counts) {
      for (int r = 0; r < size; ++r) counts.push_back(r == 1 ? 0 : count * as_size(r + 1) + 7);
      call.count = counts[as_size(rank)];
      own_block = std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
    } else {
      own_block = as_size(rank) * count;
    }
    const auto elements = [&](Extent extent) -> std::size_t {
      if (extent == Extent::world) return count * as_size(size);
      if (extent == Extent::counts) return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      return extent == Extent::one ? call.count : 0;
    };
    send = elements(row.send);
    recv = elements(row.recv);
  }
  void run(Communicator& comm, const float* from, float* into) {
    const CollectiveRow& row = row_of(call.collective);
    call.send = from;
    call.recv = into;
    if (row.send == Extent::counts) call.send_counts = counts;
    if (row.recv == Extent::counts) call.recv_counts = counts;
    comm.submit(call);
  }
  std::size_t longest() const { return std::max<std::size_t>({send, recv, 1}); }
};

inline bool went_direct(const Communicator& comm) { return last_algorithm(comm) == "zero_copy"; }

inline Options reproducible() {
  Options options;
  options.timeout = std::chrono::seconds(30);
  options.determinism = Determinism::reproducible;
  return options;
}

inline void check_all(Kind kind, int world, const Options& options, const Body& body) {
  for (const auto& error : run_world(kind, world, options, [&](Communicator& comm) {
         try {
           body(comm);
         } catch (...) {
           comm.abort();
           throw;
         }
       })) {
    INFO(sentence_of(error));
    CHECK_FALSE(error);
  }
}

}  // namespace rondo::test
