// SPDX-License-Identifier: Apache-2.0
#include "comm/node/rings/flow.hpp"

namespace rondo::comm {

Flow::Flow(Team& team, Board& board, const Chooser& chooser)
    : board_(board),
      segment_(team.segment()),
      chooser_(chooser),
      rings_(team.segment(), team.own_index(), team.crowded()),
      index_(board.index()),
      size_(board.size()) {}

bool Flow::takes_part(const Plan& plan, Stage stage, int index) {
  if (stage == kFold) return plan.folds;
  const int only = stage == kPublish ? plan.source : plan.sink;
  return only == kEverybody || only == index;
}

Flow::Frame Flow::begin(const Plan& plan) {
  board_.settle();
  Frame frame{.plan = plan, .course = chooser_.course(plan)};
  const RingCourse& course = frame.course;
  for (const Stage stage : {kPublish, kFold, kConsume})
    frame.todo[stage] = takes_part(plan, stage, index_) ? course.chunks : 0;
  if (course.chunks == 0) return frame;
  const std::uint64_t meeting = course.in_line ? board_.take_line(plan.place_bytes) : 0;
  if (meeting != 0) {
    enter_line(frame, meeting);
  } else if (course.hands_over) {
    enter_shared(frame);
  } else if (course.reuses) {
    enter_reused(frame);
  } else {
    const std::size_t deep = (course.ahead + course.rings_used - 1) / course.rings_used;
    frame.first.offset = rings_.reserve(deep * course.place_bytes);
  }
  return frame;
}

void Flow::enter_line(Frame& frame, std::uint64_t meeting) {
  frame.course = {.place_bytes = frame.course.place_bytes, .chunks = 1, .ahead = 1, .in_line = true};
  frame.first.line = 1 + static_cast<std::uint32_t>(meeting & 1);
}

// A call before may still be read where this one's places lie: lines that were used a moment ago cost less than others.
void Flow::enter_reused(Frame& frame) {
  const RingCourse& course = frame.course;
  const Reuse& latest = latest_reuse_;
  frame.earlier = latest.end;
  frame.alike = frame.earlier != 0 && latest.place_bytes == course.place_bytes && latest.places == course.ahead &&
                latest.source == frame.plan.source;
  if (frame.alike) frame.slot = latest.slot;
  frame.first.offset = rings_.reserve_reused();
  latest_reuse_ = {course.place_bytes, course.ahead, frame.plan.source, (frame.slot + course.chunks) % course.ahead,
                   before_ + course.chunks};
}

// What one rank brings the other writes next, chunk by chunk; but where that one folds, it is given back. Then calls of
// one chunk take places in turn: whoever puts there was the last to read it in any case.
void Flow::enter_shared(Frame& frame) {
  frame.first.offset =
      frame.course.in_turn ? rings_.reserve_shared_in_turn(frame.course.place_bytes) : rings_.reserve_shared();
}

Flow::Stage Flow::next(const Frame& frame, Progress& progress) {
  if (!progress.arrived && (progress.done[kPublish] != 0 || frame.todo[kPublish] == 0)) {
    progress.arrived = true;
    board_.arrive();
    const bool all_wait = frame.plan.source == kEverybody && frame.plan.sink == kEverybody;
    if (frame.course.chunks == 1 && !frame.plan.folds && all_wait) board_.give_way();
  }
  for (bool waited = false;; waited = true) {
    if (progress.arrived && !progress.all_here) look_who_is_here(frame, progress);
    for (const Stage stage : {kConsume, kFold, kPublish}) {
      if (!ready(frame, progress, stage)) continue;
      if (waited) board_.progressed();
      return stage;
    }
    if (progress.all_here && progress.done == frame.todo) {
      if (waited) board_.progressed();
      return kNone;
    }
    wait(frame, progress);
  }
}

// Where there are more chunks, ranks of this core have some of them to work on.
void Flow::wait(const Frame& frame, const Progress& progress) {
  if (frame.course.chunks > 1) return board_.idle(progress.blocked_by);
  board_.linger(progress.blocked_by, [&](int other) { return is_behind(frame, progress, other); });
}

// Has yet to do what this rank waits for.
bool Flow::is_behind(const Frame& frame, const Progress& progress, int index) const {
  if (!progress.all_here) return !board_.has_come(index);
  return takes_part(frame.plan, progress.blocked_in, index) &&
         segment_.progress(index).done[progress.blocked_in].load(std::memory_order_relaxed) < progress.blocked_until;
}

// Who must have arrived before this rank can go on: a rank, kEverybody, or nobody.
int Flow::awaited(const Frame& frame) const {
  if (frame.course.chunks == 0) return kEverybody;  // they meet for the meeting's sake
  if (frame.todo[kFold] == 0 && frame.todo[kConsume] == 0) return Board::kNobody;
  return frame.plan.source == index_ ? Board::kNobody : frame.plan.source;
}

// Whoever has arrived has published its first chunk.
void Flow::look_who_is_here(const Frame& frame, Progress& progress) {
  const int only = awaited(frame);
  progress.blocked_by = Board::kNobody;
  if (only == kEverybody) {
    progress.blocked_by = board_.absent();
  } else if (only != Board::kNobody && !board_.is_here(only)) {
    progress.blocked_by = only;
  }
  if (progress.blocked_by != Board::kNobody) return;
  progress.all_here = true;
  progress.known[kPublish] = before_ + 1;
}

bool Flow::ready(const Frame& frame, Progress& progress, Stage stage) {
  const std::size_t chunk = progress.done[stage];
  if (chunk == frame.todo[stage]) return false;
  if (stage == kPublish && chunk < frame.course.ahead) return earlier_was_read(frame, progress, chunk);
  if (stage == kPublish) return progress.all_here && overwritable(frame, progress, chunk - frame.course.ahead);
  const Stage before = stage == kConsume && frame.plan.folds ? kFold : kPublish;
  if (!progress.all_here || (frame.todo[before] != 0 && progress.done[before] <= chunk)) return false;
  return all_passed(frame, progress, before, before_ + chunk + 1);
}

// What a call before left in this chunk's place: one chunk where its places were the same, all of them otherwise.
bool Flow::earlier_was_read(const Frame& frame, Progress& progress, std::size_t chunk) {
  if (frame.earlier == 0) return true;
  const std::uint64_t chunks = frame.alike ? frame.earlier - (frame.course.ahead - 1 - chunk) : frame.earlier;
  return all_passed(frame, progress, kConsume, chunks, true);
}

// Folders read what was published, sinks what was folded, or published where nobody folds.
bool Flow::overwritable(const Frame& frame, Progress& progress, std::size_t chunk) {
  if (frame.course.hands_over) return progress.done[kConsume] > chunk;
  const auto have_passed = [&](Stage stage) {
    return (frame.todo[stage] == 0 || progress.done[stage] > chunk) &&
           all_passed(frame, progress, stage, before_ + chunk + 1);
  };
  return have_passed(kFold) && have_passed(kConsume);
}

bool Flow::all_passed(const Frame& frame, Progress& progress, Stage stage, std::uint64_t chunks, bool everybody) {
  if (progress.known[stage] >= chunks) return true;
  for (int step = 1; step < size_; ++step) {
    const int index = (index_ + step) % size_;
    if (!everybody && !takes_part(frame.plan, stage, index)) continue;
    // Acquire: pairs with tell().
    if (segment_.progress(index).done[stage].load(std::memory_order_acquire) < chunks) {
      progress.blocked_by = index;
      progress.blocked_in = stage;
      progress.blocked_until = chunks;
      return false;
    }
  }
  progress.known[stage] = chunks;
  return true;
}

void Flow::advance(const Frame& frame, Progress& progress, Stage stage) {
  ++progress.done[stage];
  if (stage == kPublish && progress.done[stage] == 1) return;  // the arrival says so
  if (stage == kConsume &&
      (frame.course.hands_over || (frame.course.chunks == frame.course.ahead && !frame.course.reuses)))
    return;  // nobody waits to overwrite it
  tell(stage, before_ + progress.done[stage]);
}

void Flow::tell(Stage stage, std::uint64_t chunks) {
  segment_.progress(index_).done[stage].store(chunks, std::memory_order_release);
  board_.wake();
}

// Whoever takes nothing has read what it folds.
void Flow::end(const Frame& frame) {
  before_ += frame.course.chunks;
  if (frame.course.reuses && frame.todo[kConsume] == 0) tell(kConsume, before_);
  if (frame.course.hands_over && !frame.plan.folds) handed_ ^= static_cast<int>(frame.course.chunks & 1);
}

kernels::Range Flow::chunk_of(const Frame& frame, const Progress& progress, Stage stage) {
  const std::size_t offset = progress.done[stage] * frame.plan.step;
  return {offset, std::min(frame.plan.step, frame.plan.count - offset)};
}

Flow::Place Flow::place_of(const Frame& frame, const Progress& progress, Stage stage) const {
  const std::size_t slot = (frame.slot + progress.done[stage]) % frame.course.ahead;
  if (frame.course.hands_over) {
    const int passed = frame.plan.folds ? 0 : static_cast<int>(progress.done[stage] & 1);
    return {frame.first.offset + slot * frame.course.place_bytes, handed_ ^ passed};
  }
  const std::size_t row = slot / frame.course.rings_used;
  return {frame.first.offset + row * frame.course.place_bytes, static_cast<int>(slot - row * frame.course.rings_used),
          frame.first.line};
}

}  // namespace rondo::comm
