// SPDX-License-Identifier: Apache-2.0
// Before the ranks meet: from the call alone.
#include <algorithm>

#include "comm/call/blocks.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/policy/thresholds.hpp"

namespace rondo::comm {

using namespace threshold;

// What is short is used in place, too, where a rank brings so much that to copy it twice takes longer than to ask.
Start Chooser::start(const Call& call, std::string_view named) const {
  if (row_of(call.collective).has_own_counts()) {
    const std::string_view usual = "its blocks are short, or not within reach";
    return {.way = Way::counted,
            .why = {.why = "all ranks share memory, and counts come with the arrivals",
                    .not_straight = named.empty() ? usual : named}};
  }
  if (!is_short(call)) {
    const Limit limit = whole_limit(call.collective);
    return {.way = Way::board,
            .asks = named.empty(),
            .why = {"all ranks share memory", limit.name, limit.bytes, {}, {}, named}};
  }
  const CollectiveRow& row = row_of(call.collective);
  const std::size_t element = size_of(call.dtype), of_root = larger_count(call, facts_.ranks) * element;
  const std::size_t brought = row.send == Extent::none ? 0 : lengths_of(call, facts_.ranks).brought * element;
  const bool brings_for_each = row.send == Extent::world && !row.rooted;
  const std::uint64_t most = !facts_.crowded || brings_for_each ? tuning_.direct_bytes
                             : row.rooted && row.reduces        ? tuning_.direct_crowd_reduce_bytes
                                                                : tuning_.direct_crowd_bytes;
  const std::size_t bytes = facts_.crowded && row.rooted ? of_root : brought;
  return {.way = Way::short_call,
          .asks = bytes > most && named.empty(),
          .why = {.why = "what a rank brings comes with its arrival"}};
}

std::string_view Chooser::why_not_ask(const Call& call, bool may_reach, bool may_copy, bool in_vain) const {
  if (!may_reach && !may_copy) return "no window was ever allocated";
  const std::size_t bytes = larger_count(call, facts_.ranks) * size_of(call.dtype);
  if (bytes < std::max<std::uint64_t>(tuning_.direct_bytes, 1)) return "it is shorter than direct_bytes";
  if (!in_vain) return "";
  return may_copy ? "one copy by the kernel was slower lately" : "such calls have not been within reach lately";
}

}  // namespace rondo::comm
