// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/device/kernels.hpp"

namespace rondo::test {

namespace device = kernels::device;

// As cuda::soft_kernels(); what their lanes do goes into the running Ledger.
cuda::Kernels counted_kernels();

}  // namespace rondo::test
