// SPDX-License-Identifier: Apache-2.0
// What find_cuda says, for any table: the tests' tables answer as machines would that are not at hand.
#pragma once
#include <string>

#include "kernels/cuda/api.hpp"

namespace rondo::cuda {

// Empty: kernels can be launched here. Otherwise one sentence: what is missing, and what to do.
std::string obstacle_of(const Api* api);

}  // namespace rondo::cuda
