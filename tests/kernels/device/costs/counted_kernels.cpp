// SPDX-License-Identifier: Apache-2.0
// The kernels once more, counted.
#define RONDO_COSTS
#include "tests/kernels/device/costs/counted_kernels.hpp"

#include "kernels/device/fifo_kernel.cuh"
#include "kernels/device/push.cuh"
#include "kernels/device/window_sum.cuh"
#include "kernels/soft/kernel.hpp"

namespace rondo::test {
namespace {

template <class P>
constexpr soft::Kernel fifo(const char* name) {
  return soft::kernel<&device::fifo_kernel<P>, device::Launch>(name);
}

constexpr soft::Kernel kSimple = fifo<device::Simple>("counted_simple");
constexpr soft::Kernel kLL = fifo<device::LL>("counted_ll");
constexpr soft::Kernel kLL128 = fifo<device::LL128>("counted_ll128");
constexpr soft::Kernel kWindow = soft::kernel<&device::window_kernel, device::Launch>("counted_window");
constexpr soft::Kernel kPushSum =
    soft::kernel<&device::push_kernel<device::PushSum<device::PlainElement<float>>>, device::PushLaunch>(
        "counted_push");
constexpr soft::Kernel kWindowSum =
    soft::kernel<&device::window_sum_kernel<device::PlainElement<float>>, device::WindowSumLaunch>(
        "counted_window_sum");
constexpr soft::Kernel kPushCopy =
    soft::kernel<&device::push_kernel<device::PushCopy>, device::PushLaunch>("counted_push_copy");

}  // namespace

// Of sums that of f32 alone.
cuda::Kernels counted_kernels() {
  return {
      {&kSimple, &kLL, &kLL128}, &kWindow, {&kPushSum, nullptr, nullptr, &kPushCopy}, {&kWindowSum, nullptr, nullptr}};
}

}  // namespace rondo::test
