// SPDX-License-Identifier: Apache-2.0
// Forks of other threads wait while one of these lives: from the making of a descriptor until it is marked, so that no
// child holds one that its parent takes for its own. For a few system calls that do not block, and not one in another.
#pragma once

namespace rondo {

class ForkPause {
 public:
  ForkPause();
  ~ForkPause();
  ForkPause(const ForkPause&) = delete;
  ForkPause& operator=(const ForkPause&) = delete;
};

}  // namespace rondo
