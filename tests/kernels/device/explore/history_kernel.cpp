// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device/explore/history_kernel.hpp"

#include "kernels/soft/kernel.hpp"
#include "tests/kernels/device/explore/scenario.hpp"

namespace rondo::test {
namespace {

namespace device = kernels::device;

constexpr soft::Kernel kHistory = soft::kernel<&device::history_kernel, device::Launch>("history");

}  // namespace

const void* history_kernel() { return &kHistory; }

}  // namespace rondo::test
