// SPDX-License-Identifier: Apache-2.0
// Where the time of a short all_reduce goes: the library's kernels with stamps, in a world made of plain memory, ranks
// as streams of one GPU.
#pragma once
#include <string>
#include <vector>

#include "tools/gpu_check/kernels.hpp"
#include "tools/gpu_check/on_streams.hpp"

#include "kernels/device/stamps.hpp"

namespace rondo::gpu_check {

struct AnatomyCase {
  bool window = true;      // one_shot over windows; otherwise LL's, or the push kernel
  bool registered = true;  // of window: input and output lie in windows
  int ranks = 2;
  std::size_t bytes = 8;  // of floats
  bool push = false;
  bool early = false;  // launched so that it may begin before the call before it has ended
  std::string name() const;
};

struct PlaceRow {
  int rank, order;  // the place is the order-th that the rank's kernel passes, from 0
  kernels::device::Stamp place;
  double median_us, least_us, most_us;  // since the kernel's own begin, over the latest launches
};
struct Anatomy {
  std::vector<PlaceRow> rows;
  Timing call;                  // in graphs, with the stamps
  std::vector<double> late_us;  // of every rank: its kernel begins after the first one's, median
};

// Throws where a result is wrong, a kernel gave up, or two launches of a rank passed different places.
Anatomy take_apart(const Api& api, const StampedKernels& kernels, const AnatomyCase& what, const Batches& batches);

}  // namespace rondo::gpu_check
