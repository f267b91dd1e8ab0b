// SPDX-License-Identifier: Apache-2.0
// One collective on the push kernels. Buffers and what must come out are those of a FIFO case of the same pattern.
#pragma once
#include <string>
#include <vector>

#include "kernels/device/push.hpp"
#include "tests/kernels/device/fifo_case.hpp"

namespace rondo::test {

inline constexpr kernels::Pattern kPushPatterns[] = {kernels::Pattern::all_reduce, kernels::Pattern::reduce_scatter,
                                                     kernels::Pattern::all_gather, kernels::Pattern::broadcast,
                                                     kernels::Pattern::barrier};

struct PushCase {
  kernels::Pattern pattern = kernels::Pattern::all_reduce;
  FifoCase call;
  int blocks = 1;  // of the layout; channels of the call may be fewer

  const void* kernel() const;
  std::string describe() const;
};

// What does not fit together is given up.
PushCase sensible(PushCase c);

DeviceWorld world_of(const PushCase& c);
std::vector<device::PushLaunch> push_launches(DeviceWorld& world);
// Operation `index` of each launch.
void add_operation(const PushCase& c, const FifoBuffers& buffers, std::vector<device::PushLaunch>& launches,
                   int index = 0);

// `launches` kernels one after the other. What went wrong, or "".
std::string run_case(const PushCase& c, std::uint32_t seed, int launches = 3, const simt::Options& options = {});

}  // namespace rondo::test
