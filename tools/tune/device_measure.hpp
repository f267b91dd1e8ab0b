// SPDX-License-Identifier: Apache-2.0
// What calls on a device take under a tuning, and which kernels run them: the cells of the perf programs, checked.
#pragma once
#include <span>
#include <vector>

#include <rondo/communicator.hpp>

#include "tools/tune/device_search.hpp"

namespace rondo::tune {

// Collective, over ranks on a device; the same on all of them. Error(system): a call gave a wrong value.
std::vector<Took> measure_on_device(Communicator& communicator, bool captured, std::span<const Cell> cells);

}  // namespace rondo::tune
