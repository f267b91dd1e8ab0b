// SPDX-License-Identifier: Apache-2.0
// Waits of the host for the device. Without Process::mutex.
#pragma once
#include "kernels/soft/process.hpp"

namespace rondo::soft {

void synchronize(Process& here, const Device& device);  // with all that its streams hold now

// As before memory of the device is freed: with it and with those that have access to it, where no kernel begins
// meanwhile.
void synchronize_before_free(Process& here, const Device& device);

}  // namespace rondo::soft
