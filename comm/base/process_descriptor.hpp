// SPDX-License-Identifier: Apache-2.0
// A descriptor that tells of another process's end. All communicators of this process share one for each other process.
#pragma once
#include <memory>

#include "comm/base/fd.hpp"

namespace rondo {

// Of the process that has this number now. Null: there is none, or the system refuses. Any thread.
std::shared_ptr<const Fd> open_process(int pid);

}  // namespace rondo
