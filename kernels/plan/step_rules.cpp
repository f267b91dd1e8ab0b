// SPDX-License-Identifier: Apache-2.0
#include "kernels/plan/step_rules.hpp"

#include "kernels/plan/text.hpp"

namespace rondo::kernels {
namespace {

struct Span {  // of the rank's memory
  std::size_t first, count;
  bool overlaps(Span other) const {
    return count > 0 && other.count > 0 && first < other.first + other.count && other.first < first + count;
  }
};

Span span_of(const SymbolicMemory& memory, Location place, std::size_t count) {
  return place.buffer == Buffer::none ? Span{0, 0} : Span{memory.cell_at(place), count};
}

class StepCheck {
 public:
  StepCheck(const Plan& plan, const SymbolicMemory& memory, Where where, Findings& findings)
      : plan_(plan), memory_(memory), where_(where), findings_(findings) {}

  bool check(const Move& move, bool may_be_long = false) {
    if (move.count == 0) return true;
    for (const int peer : {move.from, move.to}) {
      if (peer == kNobody) continue;
      if (peer < 0 || peer >= plan_.problem.size || peer == where_.rank) {
        return refuse(Fault::bad_peer, move, "there is no such peer");
      }
      if (!may_be_long) check_size(move.count);
    }
    for (const Location place : {move.local, move.store}) {
      if (place.buffer != Buffer::none && !memory_.holds(place, move.count)) {
        return refuse(Fault::out_of_range, move, text("the buffer has ", memory_.count_of(place.buffer), " elements"));
      }
    }
    if (move.store.buffer == Buffer::input) return refuse(Fault::out_of_range, move, "input is the caller's");
    if (move.from == kNobody && move.local.buffer == Buffer::none) {
      return refuse(Fault::unwritten_read, move, "there is no value");
    }
    // Slice by slice: the same place, or none in common.
    const Span read = span_of(memory_, move.local, move.count);
    const Span written = span_of(memory_, move.store, move.count);
    if (read.overlaps(written) && read.first != written.first) {
      findings_.add(Fault::race, where_, text(describe(move), ": reads and writes overlap"));
    }
    return true;
  }

  void check_size(std::size_t count) {
    if (count <= plan_.layout.chunk_capacity()) return;
    findings_.add(Fault::oversized_move, where_,
                  text(count, " elements from or to a peer, but a chunk is ", plan_.layout.chunk_capacity()));
  }

  void check_race(const Move& writer, const Move& other) {
    const Span written = span_of(memory_, writer.store, writer.count);
    if (written.overlaps(span_of(memory_, other.local, other.count)) ||
        written.overlaps(span_of(memory_, other.store, other.count))) {
      findings_.add(Fault::race, where_,
                    text(describe(writer), " writes what ", describe(other), " touches at the same time"));
    }
  }

 private:
  bool refuse(Fault fault, const Move& move, const std::string& why) {
    findings_.add(fault, where_, text(describe(move), ": ", why));
    return false;
  }

  const Plan& plan_;
  const SymbolicMemory& memory_;
  Where where_;
  Findings& findings_;
};

}  // namespace

bool check_step(const Plan& plan, const PlanStep& step, const SymbolicMemory& memory, Where where, Findings& findings) {
  StepCheck rules(plan, memory, where, findings);
  if (step.is_fold) {
    rules.check_size(step.fold.count);
    return rules.check({.count = step.fold.count, .local = step.fold.local, .store = step.fold.store});
  }
  for (const Move& move : step.moves) {
    if (!rules.check(move, step.has_steps)) return false;
  }
  for (const Move& writer : step.moves) {
    for (const Move& other : step.moves) {
      if (&writer != &other) rules.check_race(writer, other);
    }
  }
  return true;
}

}  // namespace rondo::kernels
