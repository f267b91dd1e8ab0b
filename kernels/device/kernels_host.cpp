// SPDX-License-Identifier: Apache-2.0
// The same kernels for the host executor.
#include "kernels/device/fifo_kernel.cuh"
#include "kernels/device/kernels.hpp"
#include "kernels/device/window.cuh"
#include "kernels/soft/kernel.hpp"

namespace rondo::cuda {
namespace {

namespace device = kernels::device;

template <class P>
constexpr soft::Kernel fifo(const char* name) {
  return soft::kernel<&device::fifo_kernel<P>, device::Launch>(name);
}

constexpr soft::Kernel kSimple = fifo<device::Simple>("fifo_simple");
constexpr soft::Kernel kLL = fifo<device::LL>("fifo_ll");
constexpr soft::Kernel kLL128 = fifo<device::LL128>("fifo_ll128");
constexpr soft::Kernel kWindow = soft::kernel<&device::window_kernel, device::Launch>("window");

}  // namespace

Kernels soft_kernels() { return {{&kSimple, &kLL, &kLL128}, &kWindow}; }

}  // namespace rondo::cuda
