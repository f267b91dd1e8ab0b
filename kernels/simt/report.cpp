// SPDX-License-Identifier: Apache-2.0
// What went wrong, for people: the sentence, the schedule, and where the lanes of each block are.
#include <cstdio>

#include "kernels/simt/machine.hpp"

namespace rondo::simt {
namespace {

constexpr const char* kPolicyNames[] = {"round_robin", "random", "pct_lane", "pct_warp", "pct_block", "pct_rank"};
constexpr const char* kStatusNames[] = {"ok", "deadlock", "timeout", "step limit", "misuse", "paused", "cancelled"};
constexpr const char* kStateNames[] = {"not resident",  "ready",          "running", "waiting for",
                                       "at barrier at", "in its warp at", "done"};

template <class... Values>
std::string text(const char* format, Values... values) {
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string at(const SourceLocation& place) {
  return place.file != nullptr ? text("%s:%u", place.file, place.line) : "?";
}

unsigned long long word_of(const Watch& watch, const std::uint32_t* words) {
  return watch.bytes == 4 ? words[0] : words[0] | static_cast<unsigned long long>(words[1]) << 32;
}

std::string where(const Lane& lane) {
  std::string sentence = kStateNames[static_cast<int>(lane.state)];
  if (lane.state == LaneState::parked) {
    const Watch& watch = lane.watches[0];
    sentence += text(" the word at %p, which was %llu and is %llu", watch.word, word_of(watch, watch.seen),
                     word_of(watch, static_cast<const std::uint32_t*>(watch.word)));
    if (lane.watch_count > 1) sentence += text(", or any of %u more", lane.watch_count - 1);
    sentence.append(", at ").append(at(lane.place));
  }
  if (lane.state == LaneState::at_barrier || lane.state == LaneState::in_warp)
    sentence.append(" ").append(at(lane.place));
  return sentence;
}

bool together(const Lane& a, const Lane& b) {
  if (a.state != b.state) return false;
  if (a.state == LaneState::parked && a.watches[0].word != b.watches[0].word) return false;
  const bool waits = a.state >= LaneState::parked && a.state != LaneState::done;
  return !waits || (a.place.line == b.place.line && a.place.file == b.place.file);
}

void describe(const Block& block, std::string& report) {
  for (unsigned first = 0; first < block.lane_count;) {
    unsigned end = first + 1;
    while (end < block.lane_count && together(block.lanes[first], block.lanes[end])) ++end;
    report += text("  rank %d %s block %u threads %u-%u: ", block.grid->spec.rank, block.grid->spec.name, block.index,
                   first, end - 1);
    report.append(where(block.lanes[first])).append("\n");
    first = end;
  }
}

}  // namespace

const char* name_of(Policy policy) { return kPolicyNames[static_cast<int>(policy)]; }
const char* name_of(Status status) { return kStatusNames[static_cast<int>(status)]; }

std::string Machine::head() const {
  const Status status = stuck_ ? Status::deadlock : failure_.status;
  std::string line =
      text("simt: %s: %s [policy=%s seed=%llu%s step=%llu]\n", name_of(status), stuck_ ? kNobodyCanRun : failure_.why,
           name_of(options.policy), static_cast<unsigned long long>(options.seed), options.weak ? " weak" : "",
           static_cast<unsigned long long>(steps));
  if (const Lane* lane = failure_.lane; lane != nullptr) {
    line += text("  by rank %d block %u thread %u at ", lane->rank, lane->block, lane->thread) + at(lane->place) + "\n";
  }
  return line;
}

std::string Machine::report() const {
  std::string report = head();
  for (const Block* block : blocks_) describe(*block, report);
  return report;
}

}  // namespace rondo::simt
