// SPDX-License-Identifier: Apache-2.0
// Waits of the host for the device. Without Process::mutex.
#pragma once
#include "kernels/soft/process.hpp"

namespace rondo::soft {

void synchronize(Process& here, const Device& device);  // with all that its streams hold now

}  // namespace rondo::soft
