// SPDX-License-Identifier: Apache-2.0
// The addresses of the kernels, one set per seam. Every kernel has one argument by value, a device::Launch, those for
// short messages a device::PushLaunch, those for sums over windows a device::WindowSumLaunch; block b is channel b.
// Threads: a multiple of 32, at most kMaxThreads.
#pragma once
#include <array>
#include <bit>

#include "kernels/device/push.hpp"
#include "kernels/device/window_sum.hpp"

namespace rondo::cuda {

// What LaunchKernel takes.
struct Kernels {
  const void* fifo[kernels::device::kProtocolCount];         // by Protocol: rows of kAlgorithms, messages, barriers
  const void* window;                                        // rows of kWindowAlgorithms
  const void* push[kernels::device::kPushKernelCount];       // by PushKernel: short messages
  const void* window_sum[kernels::device::kWindowSumCount];  // by WindowSum: all_reduces among rows of windows
};

// All of them, for what must hold for each: that it is loaded, fits, may begin early.
using AllKernels = std::array<const void*, sizeof(Kernels) / sizeof(const void*)>;
inline AllKernels all_of(const Kernels& kernels) { return std::bit_cast<AllKernels>(kernels); }

Kernels cuda_kernels();  // functions that nvcc compiled; only where it was found
Kernels soft_kernels();  // addresses of soft::Kernel, for the host executor

// For the host where it takes a credit (seam.cuh) that a kernel gave: with acquire, and known to ThreadSanitizer.
std::uint64_t load_credit(const std::uint64_t& word);

}  // namespace rondo::cuda
