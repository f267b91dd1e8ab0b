// SPDX-License-Identifier: Apache-2.0
// How pages about ranks say numbers, times and ends.
#pragma once
#include <string>
#include <vector>

#include "tools/rondo/read.hpp"

namespace rondo::records {

std::string list_of(const std::vector<int>& ranks);  // "0-2,5"
std::string named(const std::vector<int>& ranks);    // "ranks 0-2,5"
std::string duration(double us);                     // "3.2 s"
std::string clock_time(double us, const char* format = "%H:%M:%S");
std::string how_it_ended(const RankEnd& end);

}  // namespace rondo::records
