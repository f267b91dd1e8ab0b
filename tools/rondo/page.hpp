// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "tools/rondo/read.hpp"

namespace rondo::records {

// One page in sentences: what happened, the first call in which ranks differ, who waited for whom, how each rank ended,
// what the failed one wrote last, and who came late.
std::string page_of(const Folder& folder);

// The calls of all ranks as a trace of Chrome's (chrome://tracing, Perfetto): JSON, a process for each rank, times in
// microseconds from the first call on one axis: that of the hosts' wall clocks.
std::string trace_of(const Folder& folder);

}  // namespace rondo::records
