// SPDX-License-Identifier: Apache-2.0
// What a rank finds out about its process and its machine when it first makes a communicator. What comes from that one
// takes it as it is.
#pragma once
#include <optional>
#include <string>

namespace rondo::comm {

struct ProcessFacts {
  std::string node, host, pid_namespace;   // node: as options name it, or as found out
  int quota = 1;                           // of the control group, in cores
  std::optional<double> copied_page_us{};  // what the kernel takes to copy a page; none: not yet looked at
};

}  // namespace rondo::comm
