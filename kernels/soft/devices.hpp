// SPDX-License-Identifier: Apache-2.0
// What follows from the settings alone.
#pragma once
#include "kernels/soft/settings.hpp"

namespace rondo::soft {

inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kMaxThreadsPerMultiprocessor = 2048;

bool can_access(const Settings& settings, int number, int peer);                     // numbers in the machine
bool is_among(const std::vector<std::pair<int, int>>& pairs, int number, int peer);  // either way
int multiprocessors(const Settings& settings);
int blocks_per_multiprocessor(const Settings& settings, int threads);

}  // namespace rondo::soft
