// SPDX-License-Identifier: Apache-2.0
// Ranks that meet wait for each other, and one may go meanwhile: whoever knows how to see that says so.
#pragma once
#include <functional>

namespace rondo {

// Looked at every few milliseconds while ranks meet, in the thread that meets. Throws when somebody who is awaited is
// gone. Empty: nobody would know.
using Lookout = std::function<void()>;

}  // namespace rondo
