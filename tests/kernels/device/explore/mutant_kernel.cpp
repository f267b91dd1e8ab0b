// SPDX-License-Identifier: Apache-2.0
// The one kernel that a mutant changes, in the place of all of them. RONDO_MUTANT_PROTOCOL: its type;
// RONDO_MUTANT_WINDOW: it is the window kernel; RONDO_MUTANT_WINDOW_SUM: that and the one for sums; RONDO_MUTANT_PUSH:
// two of the push kernels; RONDO_MUTANT_HISTORY: that of histories.
#include "kernels/device/kernels.hpp"
#include "kernels/soft/kernel.hpp"
#include "tests/kernels/device/explore/history_kernel.hpp"
#include "tests/kernels/device/explore/scenario.hpp"
#if defined(RONDO_MUTANT_WINDOW_SUM)
#define RONDO_MUTANT_WINDOW
#include "kernels/device/window_sum.cuh"
#elif defined(RONDO_MUTANT_WINDOW)
#include "kernels/device/window.cuh"
#elif defined(RONDO_MUTANT_PUSH)
#include "kernels/device/push.cuh"
#elif !defined(RONDO_MUTANT_HISTORY)
#include "kernels/device/fifo_kernel.cuh"
#endif

namespace rondo::cuda {
namespace {

namespace device = kernels::device;

#if defined(RONDO_MUTANT_PUSH)
constexpr soft::Kernel kSum =
    soft::kernel<&device::push_kernel<device::PushSum<device::PlainElement<float>>>, device::PushLaunch>("mutant");
constexpr soft::Kernel kCopy = soft::kernel<&device::push_kernel<device::PushCopy>, device::PushLaunch>("mutant");
#else
#if defined(RONDO_MUTANT_WINDOW)
constexpr auto kFunction = &device::window_kernel;
#elif defined(RONDO_MUTANT_HISTORY)
constexpr auto kFunction = &device::history_kernel;
#else
using Protocol = device::RONDO_MUTANT_PROTOCOL;
constexpr auto kFunction = &device::fifo_kernel<Protocol>;
#endif
constexpr soft::Kernel kKernel = soft::kernel<kFunction, device::Launch>("mutant");
#endif
#if defined(RONDO_MUTANT_WINDOW_SUM)
constexpr soft::Kernel kSum =
    soft::kernel<&device::window_sum_kernel<device::PlainElement<float>>, device::WindowSumLaunch>("mutant");
#endif

}  // namespace

Kernels soft_kernels() {
  Kernels kernels{};
#if defined(RONDO_MUTANT_PUSH)
  kernels.push[static_cast<int>(device::PushKernel::sum_f32)] = &kSum;
  kernels.push[static_cast<int>(device::PushKernel::copy)] = &kCopy;
#elif defined(RONDO_MUTANT_WINDOW)
  kernels.window = &kKernel;
#if defined(RONDO_MUTANT_WINDOW_SUM)
  kernels.window_sum[static_cast<int>(device::WindowSum::f32)] = &kSum;
#endif
#elif !defined(RONDO_MUTANT_HISTORY)
  kernels.fifo[static_cast<int>(Protocol::kProtocol)] = &kKernel;
#endif
  return kernels;
}

}  // namespace rondo::cuda

namespace rondo::test {

const void* history_kernel() {
#ifdef RONDO_MUTANT_HISTORY
  return &cuda::kKernel;
#else
  return nullptr;
#endif
}

}  // namespace rondo::test
