// SPDX-License-Identifier: Apache-2.0
// Whom the last words of a rank that failed blame: ranks of which they say that they are gone or did not come. A number
// alone blames nobody, as a rank also says its own, and survivors have new ones.
#pragma once
#include <sys/types.h>

#include <string_view>
#include <vector>

namespace rondo::launcher {

struct Blamed {
  int rank = 0;
  pid_t pid = 0;  // as the words have it; 0: they do not
};

std::vector<Blamed> blamed_in(std::string_view words);

}  // namespace rondo::launcher
