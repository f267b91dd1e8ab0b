// SPDX-License-Identifier: Apache-2.0
// The library's kernels for short calls once more, with stamps.
#define RONDO_STAMPS
#include "kernels/device/fifo_kernel.cuh"
#include "kernels/device/push.cuh"
#include "kernels/device/window_sum.cuh"
#include "tools/gpu_check/kernels.hpp"

namespace rondo::gpu_check {

namespace device = kernels::device;

StampedKernels cuda_stamped_kernels() {
  return {.ll = reinterpret_cast<const void*>(&device::fifo_kernel<device::LL>),
          .window = reinterpret_cast<const void*>(&device::window_sum_kernel<device::PlainElement<float>>),
          .push = reinterpret_cast<const void*>(&device::push_kernel<device::PushSum<device::PlainElement<float>>>)};
}

}  // namespace rondo::gpu_check
