// SPDX-License-Identifier: Apache-2.0
#include "comm/board/flow.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t kFoldedPlaces = 2;  // one is brought while the other is folded

}  // namespace

Flow::Flow(Team& team, Board& board, const Tuning& tuning)
    : board_(board),
      segment_(team.segment()),
      rings_(team.segment(), team.own_index(), !team.spare_cores()),
      ahead_bytes_(tuning.ahead_bytes),
      warm_bytes_(tuning.streaming_bytes / 4),
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
  plan_.place_bytes = (plan.place_bytes + kLine - 1) / kLine * kLine;
  const std::size_t gap = plan.apart ? rings_.gap_behind(plan_.place_bytes) : 0;
  if (plan_.place_bytes + gap <= most_place_bytes(plan.source)) plan_.place_bytes += gap;
  chunks_ = (plan.count + plan.step - 1) / plan.step;
  for (const Stage stage : {kPublish, kFold, kConsume}) todo_[stage] = takes_part(stage, index_) ? chunks_ : 0;
  done_ = {};
  known_ = {};
  earlier_ = slot_ = 0;
  arrived_ = all_here_ = false;
  turns_ = false;
  window_ = 0;
  first_ = {};
  rings_used_ = 1;
  hands_over_ = false;
  if (chunks_ == 0) return;
  const std::uint64_t meeting = chunks_ == 1 && !plan.folds ? board_.take_line(plan.place_bytes) : 0;
  if (meeting != 0) {
    first_.line = 1 + static_cast<std::uint32_t>(meeting & 1);
    window_ = 1;
    return;
  }
  if (hands_over(plan)) return enter_shared();
  rings_used_ = plan.source == kEverybody ? 1 : static_cast<std::size_t>(size_);
  const auto places_in = [&](std::size_t bytes) {
    return std::max<std::size_t>(std::min(ahead_bytes(), bytes) / plan_.place_bytes, 1);
  };
  std::size_t in_a_ring = places_in(rings_.capacity());
  const bool fits = plan_.place_bytes <= rings_.capacity() && chunks_ <= in_a_ring * rings_used_;
  turns_ = !fits && window_bytes() >= plan_.place_bytes;
  if (turns_) in_a_ring = places_in(window_bytes());
  window_ = std::min(in_a_ring * rings_used_, chunks_);
  if (turns_) return enter_window();
  const std::size_t deep = (window_ + rings_used_ - 1) / rings_used_;
  first_.offset = rings_.reserve(deep * plan_.place_bytes);
}

// In a ring. Where ranks share cores, what a single source puts there is still in a core's own cache, beside what they
// write, when the last of that core reads it.
std::size_t Flow::ahead_bytes() const {
  if (plan_.source == kEverybody || !board_.is_crowded()) return ahead_bytes_;
  return std::min(ahead_bytes_, warm_bytes_ / rings_used_);
}

// Of a ring, for a call of more chunks than can be on their way at once. Where all put, a rank is never far ahead of
// the others, so half of it is enough, or two places; a single source goes ahead as far as it can.
std::size_t Flow::window_bytes() const {
  const std::size_t whole = rings_.window_bytes();
  return plan_.source == kEverybody ? std::max(whole / 2, std::min(whole, 2 * plan_.place_bytes)) : whole;
}

// A call before may still be read where this one's places lie: lines that were used a moment ago cost less than others.
void Flow::enter_window() {
  const Window& latest = latest_window_;
  earlier_ = latest.end;
  alike_ = earlier_ != 0 && latest.place_bytes == plan_.place_bytes && latest.places == window_ &&
           latest.source == plan_.source;
  if (alike_) slot_ = latest.slot;
  first_.offset = rings_.reserve_window();
  latest_window_ = {plan_.place_bytes, window_, plan_.source, (slot_ + chunks_) % window_, before_ + chunks_};
}

bool Flow::hands_over(const Plan& plan) const {
  return size_ == 2 && plan.handed && plan.source == kEverybody && plan.sink == kEverybody;
}

// What one rank brings the other writes next, chunk by chunk; but where that one folds, it is given back. Then calls of
// one chunk take places in turn: whoever puts there was the last to read it in any case.
void Flow::enter_shared() {
  hands_over_ = true;
  const std::size_t folded = std::clamp<std::size_t>(rings_.shared_bytes() / plan_.place_bytes, 1, kFoldedPlaces);
  window_ = plan_.folds ? std::min(folded, chunks_) : 1;
  const bool in_turn = plan_.folds && chunks_ == 1;
  first_.offset = in_turn ? rings_.reserve_shared_in_turn(plan_.place_bytes) : rings_.reserve_shared();
}

Flow::Stage Flow::next() {
  if (!arrived_ && (done_[kPublish] != 0 || todo_[kPublish] == 0)) {
    arrived_ = true;
    board_.arrive();
    const bool all_wait = plan_.source == kEverybody && plan_.sink == kEverybody;
    if (chunks_ == 1 && !plan_.folds && all_wait) board_.give_way();
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
  if (chunks_ > 1) return board_.idle(blocked_by_);
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
  if (chunks_ == 0) return kEverybody;  // they meet for the meeting's sake
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
  if (stage == kPublish && chunk < window_) return earlier_was_read(chunk);
  if (stage == kPublish) return all_here_ && overwritable(chunk - window_);
  const Stage before = stage == kConsume && plan_.folds ? kFold : kPublish;
  if (!all_here_ || (todo_[before] != 0 && done_[before] <= chunk)) return false;
  return all_passed(before, before_ + chunk + 1);
}

// What a call before left in this chunk's place: one chunk where its places were the same, all of them otherwise.
bool Flow::earlier_was_read(std::size_t chunk) {
  if (earlier_ == 0) return true;
  const std::uint64_t chunks = alike_ ? earlier_ - (window_ - 1 - chunk) : earlier_;
  return all_passed(kConsume, chunks, true);
}

// Folders read what was published, sinks what was folded, or published where nobody folds.
bool Flow::overwritable(std::size_t chunk) {
  if (hands_over_) return done_[kConsume] > chunk;
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
  if (stage == kPublish && done_[stage] == 1) return;                                 // the arrival says so
  if (stage == kConsume && (hands_over_ || (chunks_ == window_ && !turns_))) return;  // nobody waits to overwrite it
  tell(stage, before_ + done_[stage]);
}

void Flow::tell(Stage stage, std::uint64_t chunks) {
  segment_.progress(index_).done[stage].store(chunks, std::memory_order_release);
  board_.wake();
}

// Whoever takes nothing has read what it folds.
void Flow::end() {
  before_ += chunks_;
  if (turns_ && todo_[kConsume] == 0) tell(kConsume, before_);
  if (hands_over_ && !plan_.folds) handed_ ^= static_cast<int>(chunks_ & 1);
}

kernels::Range Flow::chunk_of(Stage stage) const {
  const std::size_t offset = done_[stage] * plan_.step;
  return {offset, std::min(plan_.step, plan_.count - offset)};
}

Flow::Place Flow::place_of(Stage stage) const {
  const std::size_t slot = (slot_ + done_[stage]) % window_;
  if (hands_over_) {
    const int passed = plan_.folds ? 0 : static_cast<int>(done_[stage] & 1);
    return {first_.offset + slot * plan_.place_bytes, handed_ ^ passed};
  }
  const std::size_t row = slot / rings_used_;
  return {first_.offset + row * plan_.place_bytes, static_cast<int>(slot - row * rings_used_), first_.line};
}

}  // namespace rondo::comm
