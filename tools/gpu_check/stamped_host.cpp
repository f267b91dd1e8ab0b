// SPDX-License-Identifier: Apache-2.0
#define RONDO_STAMPS
#include "kernels/device/fifo_kernel.cuh"
#include "kernels/device/push.cuh"
#include "kernels/device/window_sum.cuh"
#include "kernels/soft/kernel.hpp"
#include "tools/gpu_check/kernels.hpp"

namespace rondo::gpu_check {
namespace {

namespace device = kernels::device;

constexpr soft::Kernel kLL = soft::kernel<&device::fifo_kernel<device::LL>, device::Launch>("stamped_ll");
constexpr soft::Kernel kWindow =
    soft::kernel<&device::window_sum_kernel<device::PlainElement<float>>, device::WindowSumLaunch>("stamped_window");
constexpr soft::Kernel kPush =
    soft::kernel<&device::push_kernel<device::PushSum<device::PlainElement<float>>>, device::PushLaunch>(
        "stamped_push");

}  // namespace

StampedKernels soft_stamped_kernels() { return {.ll = &kLL, .window = &kWindow, .push = &kPush}; }

}  // namespace rondo::gpu_check
