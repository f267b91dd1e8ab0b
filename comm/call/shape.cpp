// SPDX-License-Identifier: Apache-2.0
#include "comm/call/shape.hpp"

#include <algorithm>

#include "comm/call/blocks.hpp"
#include "kernels/average.hpp"

namespace rondo::comm {
namespace {

using kernels::Pattern;

// What algorithms call it. Its row there says the same of its buffers (a test compares them).
Pattern pattern_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return Pattern::all_reduce;
    case Collective::reduce:
      return Pattern::reduce;
    case Collective::broadcast:
      return Pattern::broadcast;
    case Collective::all_gather:
    case Collective::all_gather_v:
      return Pattern::all_gather;
    case Collective::reduce_scatter:
      return Pattern::reduce_scatter;
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return Pattern::all_to_all;
    case Collective::gather:
    case Collective::gather_v:
      return Pattern::gather;
    case Collective::scatter:
    case Collective::scatter_v:
      return Pattern::scatter;
    case Collective::send:  // no algorithm moves messages
    case Collective::recv:
    case Collective::barrier:
      break;
  }
  return Pattern::barrier;
}

}  // namespace

bool moves_nothing(const Call& call) {
  if (row_of(call.collective).has_own_counts()) return false;
  const auto counts = counts_of(call);
  if (counts.empty()) return call.count == 0;
  return std::all_of(counts.begin(), counts.end(), [](std::size_t count) { return count == 0; });
}

CallShape shape_of(const Call& call, int world_size) {
  const CollectiveRow& row = row_of(call.collective);
  const bool nothing = moves_nothing(call);
  return {.pattern = nothing ? Pattern::barrier : pattern_of(call.collective),
          .bytes = row.has_own_counts() ? 0 : larger_count(call, world_size) * size_of(call.dtype),
          .variable_counts = !counts_of(call).empty(),
          .one_fold = !nothing && row.reduces && kernels::averages_widely(call.dtype, call.op),
          .dtype = call.dtype,
          .op = call.op.kind()};
}

}  // namespace rondo::comm
