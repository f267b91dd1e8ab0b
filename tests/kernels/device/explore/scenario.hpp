// SPDX-License-Identifier: Apache-2.0
// What a seed stands for: a small world with FIFOs that are nearly always full, a few launches of one kernel on it, and
// a schedule for each launch. All ranks run in this thread.
#pragma once
#include <cstdint>
#include <string>

namespace rondo::test {

// window_sum: the kernels made for sums over windows, and now and then the general one.
enum class KernelUnderTest : std::uint8_t { simple, ll, ll128, window, window_sum, push, history };
inline constexpr int kKernelCount = 7;
inline constexpr const char* kKernelNames[kKernelCount] = {"simple",     "ll",   "ll128",  "window",
                                                           "window_sum", "push", "history"};

const void* history_kernel();  // no kernel of a collective: history_kernel.hpp

// What went wrong, with the world, the launch and the schedule; "" if nothing.
std::string explore(KernelUnderTest kernel, std::uint64_t seed);

}  // namespace rondo::test
