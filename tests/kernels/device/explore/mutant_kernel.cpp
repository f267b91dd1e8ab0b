// SPDX-License-Identifier: Apache-2.0
// The one kernel that a mutant changes, in the place of all of them. RONDO_MUTANT_PROTOCOL: its type;
// RONDO_MUTANT_WINDOW: it is the window kernel.
#include "kernels/device/kernels.hpp"
#include "kernels/soft/kernel.hpp"
#ifdef RONDO_MUTANT_WINDOW
#include "kernels/device/window.cuh"
#else
#include "kernels/device/fifo_kernel.cuh"
#endif

namespace rondo::cuda {
namespace {

namespace device = kernels::device;

#ifdef RONDO_MUTANT_WINDOW
constexpr auto kFunction = &device::window_kernel;
#else
using Protocol = device::RONDO_MUTANT_PROTOCOL;
constexpr auto kFunction = &device::fifo_kernel<Protocol>;
#endif
constexpr soft::Kernel kKernel = soft::kernel<kFunction, device::Launch>("mutant");

}  // namespace

Kernels soft_kernels() {
  Kernels kernels{};
#ifdef RONDO_MUTANT_WINDOW
  kernels.window = &kKernel;
#else
  kernels.fifo[static_cast<int>(Protocol::kProtocol)] = &kKernel;
#endif
  return kernels;
}

}  // namespace rondo::cuda
