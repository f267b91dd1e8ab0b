// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rondo {

// No other thread of this process can call anything: those that there are, are the library's, and run nothing of the
// program's. While the calling thread is in a call, that stays so. False where it cannot be known.
bool is_only_caller();

}  // namespace rondo
