// SPDX-License-Identifier: Apache-2.0
// Runs a plan on symbols instead of numbers: every value knows whose contributions it holds, of which element, and how
// often the operator's first and last touch were applied. FIFOs are bounded as the plan's layout says.
//
// One run decides for all interleavings. Ranks share nothing but FIFOs, each with one writer and one reader; both
// block, neither can ask whether it would. Such a network (G. Kahn, 1974; a bounded FIFO is two unbounded ones, of
// slices and of free slots) computes the same streams, and stops at the same place, in whatever order its parts run.
// What could break that, Moves that progress together and touch the same memory, is a finding of its own (race).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels/plan/plan.hpp"

namespace rondo::kernels {

enum class Fault {
  bad_peer,                // a Move from or to nobody that exists, or to itself
  out_of_range,            // outside the buffer, a buffer this rank does not have, or the caller's input written
  oversized_move,          // more than a chunk over a link
  race,                    // Moves of one run touch what another of them writes
  wrong_count,             // a slice of another length than its receiver expects
  deadlock,                // ranks wait for each other, or for one that has finished
  leftover,                // slices that nobody received
  unwritten_read,          // read before a write
  overwritten_input,       // in place: input read after output was written over it
  lost_contribution,       // an output without some rank's part, or not written at all
  duplicate_contribution,  // a rank's part added twice
  wrong_element,           // another element than the place asks for, or another rank's
  wrong_first_touch,       // premul_sum would multiply an input not once
  wrong_completion,        // average would divide not once, or before the sum is whole
  wrong_order,             // canonical_order promised, but not a left fold over the ranks
  different_bits,          // two ranks added up the same element in different ways
  early_leave,             // a barrier that a rank can leave before another has come
};
std::string_view name_of(Fault fault);

struct Finding {
  Fault fault{};
  int rank = kNobody;
  int step = -1;         // index in the rank's plan; -1: after the last
  std::string sentence;  // names rank, step and what is wrong
};

// Empty: the plan is right. At most a handful of findings, the first one first.
std::vector<Finding> verify(const Plan& plan);

}  // namespace rondo::kernels
