// SPDX-License-Identifier: Apache-2.0
// Lists of hosts as Slurm writes them: "n[07-9,12]-ib0,r[1-2]n[3-4],m3".
#pragma once
#include <string>
#include <vector>

namespace rondo::runtime {

inline constexpr std::size_t kMostHosts = 65536;

// Every host in the order of the list: of several brackets the last one counts fastest, and a range's numbers have at
// least as many digits as its first one. invalid_argument naming `what` and the place when `text` is no such list, or
// names more than kMostHosts.
std::vector<std::string> expand_host_list(const std::string& text, const std::string& what);

}  // namespace rondo::runtime
