// SPDX-License-Identifier: Apache-2.0
// The kernels as nvcc compiles them.
#include "kernels/device/fifo_kernel.cuh"
#include "kernels/device/kernels.hpp"
#include "kernels/device/push.cuh"
#include "kernels/device/window_sum.cuh"

namespace rondo::cuda {

namespace device = kernels::device;

Kernels cuda_kernels() {
  return {{reinterpret_cast<const void*>(&device::fifo_kernel<device::Simple>),
           reinterpret_cast<const void*>(&device::fifo_kernel<device::LL>),
           reinterpret_cast<const void*>(&device::fifo_kernel<device::LL128>)},
          reinterpret_cast<const void*>(&device::window_kernel),
          {reinterpret_cast<const void*>(&device::push_kernel<device::PushSum<device::PlainElement<float>>>),
           reinterpret_cast<const void*>(&device::push_kernel<device::PushSum<device::F16Element>>),
           reinterpret_cast<const void*>(&device::push_kernel<device::PushSum<device::Bf16Element>>),
           reinterpret_cast<const void*>(&device::push_kernel<device::PushCopy>)},
          {reinterpret_cast<const void*>(&device::window_sum_kernel<device::PlainElement<float>>),
           reinterpret_cast<const void*>(&device::window_sum_kernel<device::F16Element>),
           reinterpret_cast<const void*>(&device::window_sum_kernel<device::Bf16Element>)}};
}

}  // namespace rondo::cuda
