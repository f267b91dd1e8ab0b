// SPDX-License-Identifier: Apache-2.0
#include "comm/node/rings/flow.hpp"

namespace rondo::comm {

Flow::Flow(Team& team, Board& board, const Chooser& chooser)
    : board_(board),
      segment_(team.segment()),
      chooser_(chooser),
      rings_(team.segment(), team.own_index(), !team.spare_cores()),
      index_(board.index()),
      size_(board.size()) {}

bool Flow::takes_part(Stage stage, int index) const {
  if (stage == kFold) return plan_.folds;
  const int only = stage == kPublish ? plan_.source : plan_.sink;
  return only == kEverybody || only == index;
}

void Flow::begin(const Plan& plan) {
  board_.settle();
  plan_ = plan;
  course_ = chooser_.course(plan);
  for (const Stage stage : {kPublish, kFold, kConsume}) todo_[stage] = takes_part(stage, index_) ? course_.chunks : 0;
  done_ = {};
  known_ = {};
  earlier_ = slot_ = 0;
  arrived_ = all_here_ = false;
  first_ = {};
  if (course_.chunks == 0) return;
  const std::uint64_t meeting = course_.in_line ? board_.take_line(plan.place_bytes) : 0;
  if (meeting != 0) return enter_line(meeting);
  if (course_.hands_over) return enter_shared();
  if (course_.turns) return enter_window();
  const std::size_t deep = (course_.window + course_.rings_used - 1) / course_.rings_used;
  first_.offset = rings_.reserve(deep * course_.place_bytes);
}

void Flow::enter_line(std::uint64_t meeting) {
  course_ = {.place_bytes = course_.place_bytes, .chunks = 1, .window = 1, .in_line = true};
  first_.line = 1 + static_cast<std::uint32_t>(meeting & 1);
}

// A call before may still be read where this one's places lie: lines that were used a moment ago cost less than others.
void Flow::enter_window() {
  const Window& latest = latest_window_;
  earlier_ = latest.end;
  alike_ = earlier_ != 0 && latest.place_bytes == course_.place_bytes && latest.places == course_.window &&
           latest.source == plan_.source;
  if (alike_) slot_ = latest.slot;
  first_.offset = rings_.reserve_window();
  latest_window_ = {course_.place_bytes, course_.window, plan_.source, (slot_ + course_.chunks) % course_.window,
                    before_ + course_.chunks};
}

// What one rank brings the other writes next, chunk by chunk; but where that one folds, it is given back. Then calls of
// one chunk take places in turn: whoever puts there was the last to read it in any case.
void Flow::enter_shared() {
  first_.offset = course_.in_turn ? rings_.reserve_shared_in_turn(course_.place_bytes) : rings_.reserve_shared();
}

Flow::Stage Flow::next() {
  if (!arrived_ && (done_[kPublish] != 0 || todo_[kPublish] == 0)) {
    arrived_ = true;
    board_.arrive();
    const bool all_wait = plan_.source == kEverybody && plan_.sink == kEverybody;
    if (course_.chunks == 1 && !plan_.folds && all_wait) board_.give_way();
  }
  for (bool waited = false;; waited = true) {
    if (arrived_ && !all_here_) look_who_is_here();
    for (const Stage stage : {kConsume, kFold, kPublish}) {
      if (!ready(stage)) continue;
      if (waited) board_.progressed();
      return stage;
    }
    if (all_here_ && done_ == todo_) {
      if (waited) board_.progressed();
      return kNone;
    }
    wait();
  }
}

// Where there are more chunks, ranks of this core have some of them to work on.
void Flow::wait() {
  if (course_.chunks > 1) return board_.idle(blocked_by_);
  board_.linger(blocked_by_, [this](int other) { return is_behind(other); });
}

// Has yet to do what this rank waits for.
bool Flow::is_behind(int index) const {
  if (!all_here_) return !board_.has_come(index);
  return takes_part(blocked_in_, index) &&
         segment_.progress(index).done[blocked_in_].load(std::memory_order_relaxed) < blocked_until_;
}

// Who must have arrived before this rank can go on: a rank, kEverybody, or nobody.
int Flow::awaited() const {
  if (course_.chunks == 0) return kEverybody;  // they meet for the meeting's sake
  if (todo_[kFold] == 0 && todo_[kConsume] == 0) return Board::kNobody;
  return plan_.source == index_ ? Board::kNobody : plan_.source;
}

// Whoever has arrived has published its first chunk.
void Flow::look_who_is_here() {
  const int only = awaited();
  blocked_by_ = Board::kNobody;
  if (only == kEverybody) {
    blocked_by_ = board_.absent();
  } else if (only != Board::kNobody && !board_.is_here(only)) {
    blocked_by_ = only;
  }
  if (blocked_by_ != Board::kNobody) return;
  all_here_ = true;
  known_[kPublish] = before_ + 1;
}

bool Flow::ready(Stage stage) {
  const std::size_t chunk = done_[stage];
  if (chunk == todo_[stage]) return false;
  if (stage == kPublish && chunk < course_.window) return earlier_was_read(chunk);
  if (stage == kPublish) return all_here_ && overwritable(chunk - course_.window);
  const Stage before = stage == kConsume && plan_.folds ? kFold : kPublish;
  if (!all_here_ || (todo_[before] != 0 && done_[before] <= chunk)) return false;
  return all_passed(before, before_ + chunk + 1);
}

// What a call before left in this chunk's place: one chunk where its places were the same, all of them otherwise.
bool Flow::earlier_was_read(std::size_t chunk) {
  if (earlier_ == 0) return true;
  const std::uint64_t chunks = alike_ ? earlier_ - (course_.window - 1 - chunk) : earlier_;
  return all_passed(kConsume, chunks, true);
}

// Folders read what was published, sinks what was folded, or published where nobody folds.
bool Flow::overwritable(std::size_t chunk) {
  if (course_.hands_over) return done_[kConsume] > chunk;
  const auto have_passed = [&](Stage stage) {
    return (todo_[stage] == 0 || done_[stage] > chunk) && all_passed(stage, before_ + chunk + 1);
  };
  return have_passed(kFold) && have_passed(kConsume);
}

bool Flow::all_passed(Stage stage, std::uint64_t chunks, bool everybody) {
  if (known_[stage] >= chunks) return true;
  for (int step = 1; step < size_; ++step) {
    const int index = (index_ + step) % size_;
    if (!everybody && !takes_part(stage, index)) continue;
    // Acquire: pairs with tell().
    if (segment_.progress(index).done[stage].load(std::memory_order_acquire) < chunks) {
      blocked_by_ = index;
      blocked_in_ = stage;
      blocked_until_ = chunks;
      return false;
    }
  }
  known_[stage] = chunks;
  return true;
}

void Flow::advance(Stage stage) {
  ++done_[stage];
  if (stage == kPublish && done_[stage] == 1) return;  // the arrival says so
  if (stage == kConsume && (course_.hands_over || (course_.chunks == course_.window && !course_.turns)))
    return;  // nobody waits to overwrite it
  tell(stage, before_ + done_[stage]);
}

void Flow::tell(Stage stage, std::uint64_t chunks) {
  segment_.progress(index_).done[stage].store(chunks, std::memory_order_release);
  board_.wake();
}

// Whoever takes nothing has read what it folds.
void Flow::end() {
  before_ += course_.chunks;
  if (course_.turns && todo_[kConsume] == 0) tell(kConsume, before_);
  if (course_.hands_over && !plan_.folds) handed_ ^= static_cast<int>(course_.chunks & 1);
}

kernels::Range Flow::chunk_of(Stage stage) const {
  const std::size_t offset = done_[stage] * plan_.step;
  return {offset, std::min(plan_.step, plan_.count - offset)};
}

Flow::Place Flow::place_of(Stage stage) const {
  const std::size_t slot = (slot_ + done_[stage]) % course_.window;
  if (course_.hands_over) {
    const int passed = plan_.folds ? 0 : static_cast<int>(done_[stage] & 1);
    return {first_.offset + slot * course_.place_bytes, handed_ ^ passed};
  }
  const std::size_t row = slot / course_.rings_used;
  return {first_.offset + row * course_.place_bytes, static_cast<int>(slot - row * course_.rings_used), first_.line};
}

}  // namespace rondo::comm
