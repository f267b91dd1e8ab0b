// SPDX-License-Identifier: Apache-2.0
#include "kernels/plan/value_rules.hpp"

#include "kernels/plan/text.hpp"

namespace rondo::kernels {
namespace {

std::string name_of(Location place) {
  static constexpr const char* kNames[] = {"nothing", "input", "output", "scratch"};
  return text(kNames[static_cast<int>(place.buffer)], "[", place.offset, "]");
}

}  // namespace

std::string describe(RankSet ranks) {
  std::string names = (ranks & (ranks - 1)) == 0 ? "rank" : "ranks";
  for (int rank = 0; rank < kMaxPlannedRanks; ++rank) {
    if ((ranks & set_of(rank)) != 0) names += text(" ", rank);
  }
  return ranks == 0 ? "no rank" : names;
}

void Findings::add(Fault fault, Where where, const std::string& what) {
  if (full()) return;
  const std::string at = where.step < 0 ? " at the end: " : text(" step ", where.step, ": ");
  list_.push_back({fault, where.rank, where.step, text("rank ", where.rank, at, what)});
}

Value ValueRules::read(SymbolicMemory& memory, Location place, Where where) {
  Value value = memory.at(place);
  if (!value.written) {
    findings_.add(Fault::unwritten_read, where, text("reads ", name_of(place), ", which nothing has written"));
    return value;
  }
  if (place.buffer != Buffer::input) return value;
  if (!memory.is_raw_input(place)) {
    findings_.add(Fault::overwritten_input, where, text("reads ", name_of(place), " after output was written over it"));
    return {};
  }
  if (reduces()) value.first_touches = 1;
  return value;
}

void ValueRules::check_addable(const Value& value, Where where) {
  if (value.first_touches != 1) {
    findings_.add(
        Fault::wrong_first_touch, where,
        text("adds ", describe(value.ranks), "'s element ", value.element, " without the operator's first touch"));
  }
  if (value.completions != 0) {
    findings_.add(Fault::wrong_completion, where, "adds to a value that is complete already");
  }
}

Value ValueRules::combine(const Value& received, const Value& local, Where where) {
  if (!received.written || !local.written) return {};  // reported when read
  if (!reduces()) {
    findings_.add(Fault::wrong_element, where, "adds two values in a collective that only moves them");
    return local;
  }
  check_addable(received, where);
  check_addable(local, where);
  if (received.element != local.element) {
    findings_.add(Fault::wrong_element, where, text("adds element ", received.element, " to element ", local.element));
  }
  if ((received.ranks & local.ranks) != 0) {
    findings_.add(Fault::duplicate_contribution, where,
                  text("adds the contribution of ", describe(received.ranks & local.ranks), " a second time"));
  }
  Value sum = local;
  sum.ranks |= received.ranks;
  sum.order = order_of(received.order, local.order);
  sum.folded = false;
  return sum;
}

Value ValueRules::complete(Value value, Where where) {
  if (!value.written) return value;
  const RankSet missing = all_ranks(problem_.size) & ~value.ranks;
  if (missing != 0) {
    findings_.add(Fault::wrong_completion, where, text("completes a value that still lacks ", describe(missing)));
  }
  ++value.completions;
  return value;
}

Value ValueRules::fold(const std::vector<Value>& by_rank, Where where) {
  Value sum = by_rank[0];
  sum.ranks = 0;
  for (int rank = 0; rank < problem_.size; ++rank) {
    const Value& next = by_rank[static_cast<std::size_t>(rank)];
    if (!next.written) return {};
    check_addable(next, where);
    if (next.ranks != set_of(rank)) {
      findings_.add(Fault::wrong_order, where,
                    text("folds ", describe(next.ranks), "'s contribution in the place of rank ", rank));
    }
    if (next.element != sum.element) {
      findings_.add(Fault::wrong_element, where, text("folds element ", next.element, " with element ", sum.element));
    }
    sum.ranks |= next.ranks;
    if (rank > 0) sum.order = order_of(sum.order, next.order);
  }
  sum = complete(sum, where);
  sum.folded = true;
  return sum;
}

bool ValueRules::check_output(const Work& work, const Value& value, std::size_t element) {
  const Where where{work.rank, -1};
  const Origin origin = origin_of(problem_, work, element);
  const RankSet expected = origin.rank == kNobody ? all_ranks(problem_.size) : set_of(origin.rank);
  const int touches = reduces() ? 1 : 0;
  const auto wrong = [&](Fault fault, const std::string& what) {
    findings_.add(fault, where, text("output[", element, "] ", what));
    return false;
  };
  if (!value.written) return wrong(Fault::lost_contribution, "was never written");
  if (value.element != origin.element || (value.ranks & ~expected) != 0) {
    return wrong(Fault::wrong_element, text("holds element ", value.element, " of ", describe(value.ranks),
                                            " instead of element ", origin.element, " of ", describe(expected)));
  }
  if (value.ranks != expected) {
    return wrong(Fault::lost_contribution, text("lacks the contribution of ", describe(expected & ~value.ranks)));
  }
  if (value.first_touches != touches) return wrong(Fault::wrong_first_touch, "lacks the operator's first touch");
  if (value.completions != touches) {
    return wrong(Fault::wrong_completion,
                 text("was completed ", int{value.completions}, " times instead of ", touches));
  }
  if (canonical_ && reduces() && problem_.size > 1 && !value.folded) {
    return wrong(Fault::wrong_order, "is not a left fold in rank order, as its algorithm promises");
  }
  return true;
}

}  // namespace rondo::kernels
