// SPDX-License-Identifier: Apache-2.0
// What the kernel says of a process whose id means the same here.
#pragma once

namespace rondo {

// By a signal or a debugger. False where that cannot be known.
bool is_stopped(int pid);

}  // namespace rondo
