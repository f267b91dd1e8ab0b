// SPDX-License-Identifier: Apache-2.0
// How lanes take turns: who is ready, who is parked on which words, and what is done when nobody can run.
#include "kernels/simt/machine.hpp"

#include <cstdarg>
#include <cstdio>

namespace rondo::simt {

constinit thread_local LaneHead* t_lane = nullptr;
constinit thread_local Machine* t_machine = nullptr;

namespace {

constexpr unsigned kPollEvery = 64;  // picks, while some lanes run and others are parked

bool changed(const Watch& watch) {
  const auto* words = static_cast<const std::uint32_t*>(watch.word);
  for (unsigned i = 0; i < watch.bytes / 4; ++i) {
    if (__atomic_load_n(words + i, __ATOMIC_RELAXED) != watch.seen[i]) return true;
  }
  return false;
}

bool changed(const Lane& lane) {
  if (lane.abort != nullptr && __atomic_load_n(lane.abort, __ATOMIC_RELAXED) != 0) return true;
  for (unsigned i = 0; i < lane.watch_count; ++i) {
    if (changed(lane.watches[i])) return true;
  }
  return false;
}

std::uintptr_t line_of(const void* word) { return reinterpret_cast<std::uintptr_t>(word) / 128; }

// By lines: which words share one does not depend on where the program lies, and spurious wake-ups do no harm.
bool watches(const Lane& lane, const void* word) {
  if (lane.abort == word) return true;
  for (unsigned i = 0; i < lane.watch_count; ++i) {
    if (line_of(lane.watches[i].word) == line_of(word)) return true;
  }
  return false;
}

bool same(const Watch& a, const Watch& b) {
  if (a.word != b.word || a.bytes != b.bytes) return false;
  for (unsigned i = 0; i < a.bytes / 4; ++i) {
    if (a.seen[i] != b.seen[i]) return false;
  }
  return true;
}

}  // namespace

// ---- by lanes

void Machine::scheduling_point(Lane& lane) {
  ++steps;
  if (options.max_steps != 0 && steps > options.max_steps) {
    stop(Status::step_limit, &lane, "still running after %llu steps", static_cast<unsigned long long>(steps));
    switch_to(lane.fiber, nullptr, true);
  }
  if (lane.weak) let_out_by_chance(lane);
  if (options.pause_per_10000 != 0 && random.below(10000) < options.pause_per_10000) {
    pause_ = true;
    make_ready(lane);
    run_next(lane);
    return;
  }
  Lane* next = picker_.replacement(lane, ready_, steps);
  if (next == nullptr) return;
  ready_.remove(*next);
  lane.state = LaneState::ready;
  ready_.add(lane);
  switch_to(lane.fiber, next);
}

void Machine::park(Lane& lane, const Watch* watches, unsigned count) {
  if (options.explore) ++steps;
  if (!same(lane.last_watch, *watches)) idle_.reset();  // it did not only look at the clock
  lane.last_watch = *watches;
  lane.watches = watches;
  lane.watch_count = count;
  lane.state = LaneState::parked;
  parked_.add(lane);
  run_next(lane);
}

void Machine::wake(const void* word) {
  for (std::size_t i = 0; i < parked_.size();) {
    if (watches(parked_[i], word)) {
      unpark(parked_[i]);
    } else {
      ++i;
    }
  }
}

void Machine::make_ready(Lane& lane) {
  lane.state = LaneState::ready;
  ready_.add(lane);
  picker_.note_ready();
}

void Machine::unpark(Lane& lane) {
  parked_.remove(lane);
  make_ready(lane);
}

void Machine::run_next(Lane& waiting) {
  Lane* next = pick();
  if (next != &waiting) switch_to(waiting.fiber, next);
}

void Machine::switch_to(Fiber& from, Lane* to, bool for_good) {
  ++switches;
  t_lane = to;
  if (to != nullptr) to->state = LaneState::running;
  switch_fiber(from, to != nullptr ? to->fiber : caller_, for_good);
}

// ---- failures

void Machine::stop(Status status, const Lane* lane, const char* format, ...) {
  failure_.status = status;
  failure_.lane = lane;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(failure_.why, sizeof failure_.why, format, arguments);
  va_end(arguments);
}

void Machine::fail(const Lane& lane, const char* format, ...) {
  failure_.status = Status::misuse;
  failure_.lane = &lane;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(failure_.why, sizeof failure_.why, format, arguments);
  va_end(arguments);
  switch_to(const_cast<Lane&>(lane).fiber, nullptr, true);
  __builtin_unreachable();
}

// ---- nobody in particular

Lane* Machine::pick() {
  if (failure_.status != Status::ok || live_ == 0 || pause_) return nullptr;
  if (!options.explore && ++picks_ % kPollEvery == 0) {
    poll_parked();
    if (is_cancelled()) return nullptr;
  }
  if (ready_.empty() && !wake_somebody()) return nullptr;
  Lane& next = picker_.choose(ready_);
  ready_.remove(next);
  next.state = LaneState::running;
  return &next;
}

bool Machine::wake_somebody() {
  while (options.weak && let_out_any()) {
    if (!ready_.empty()) return true;
  }
  if (poll_parked()) return true;
  if (options.external) return wait_outside();
  if (jump_clock()) return true;
  if (options.incremental) {
    stuck_ = true;
  } else {
    stop(Status::deadlock, nullptr, kNobodyCanRun);
  }
  return false;
}

bool Machine::poll_parked() {
  for (std::size_t i = 0; i < parked_.size();) {
    if (changed(parked_[i])) {
      unpark(parked_[i]);
    } else {
      ++i;
    }
  }
  return !ready_.empty();
}

void Machine::let_lanes_look() {
  while (!parked_.empty()) unpark(parked_[parked_.size() - 1]);
}

bool Machine::jump_clock() {
  if (parked_.empty() || now_ns() >= options.idle_clock_ns) return false;
  clock_jumps_ns_ += 1'000'000;
  let_lanes_look();
  return true;
}

bool Machine::wait_outside() {
  while (!is_cancelled()) {
    switch (idle_.wait()) {
      case IdleWait::Advice::poll:
        if (!poll_parked()) continue;
        idle_.reset();
        return true;
      case IdleWait::Advice::let_lanes_look:
        let_lanes_look();
        if (!ready_.empty()) return true;
        continue;
      case IdleWait::Advice::give_up:
        stop(Status::timeout, nullptr, "nothing has moved for %u s", options.watchdog_s);
        return false;
    }
  }
  return false;
}

bool Machine::is_cancelled() {
  if (options.cancel == nullptr || !options.cancel->load(std::memory_order_relaxed)) return false;
  stop(Status::cancelled, nullptr, "cancelled");
  return true;
}

std::uint64_t Machine::now_ns() const { return options.explore ? steps + clock_jumps_ns_ : clock_ns(); }

// ---- the calls of lane_api.hpp

void scheduling_point() {
  Lane& lane = running_lane();
  if (lane.early) running_machine().fail(lane, "the lane uses memory and %s", kHasNotWaited);
  if (lane.explore) running_machine().scheduling_point(lane);
}
void stored(const void* word) { running_machine().wake(word); }
void park(const Watch* watches, unsigned count, const std::uint32_t* abort, SourceLocation place) {
  Lane& lane = running_lane();
  lane.abort = abort;
  lane.place = place;
  running_machine().park(lane, watches, count);
}
void before_credit(const void* word) {
  __atomic_thread_fence(__ATOMIC_RELEASE);
  happens_before(static_cast<const char*>(word) + sizeof(std::uint64_t));
}
void after_credit(const void* word) { happens_after(static_cast<const char*>(word) + sizeof(std::uint64_t)); }
void before_opening(const void* line) {
  Lane& lane = running_lane();
  if (!lane.alone) running_machine().fail(lane, "the lane opens with a line though it has met others");
  happens_before(static_cast<const char*>(line) + sizeof(std::uint64_t));
}
void after_opening(const void* line) { happens_after(static_cast<const char*>(line) + sizeof(std::uint64_t)); }
std::uint64_t timer_ns() { return running_machine().now_ns(); }
std::uint64_t random_bits() { return running_machine().random.bits(); }
void exchanges(const void* word) {
  const auto may_exchange = running_machine().options.may_exchange;
  if (may_exchange != nullptr && !may_exchange(word)) trap("an exchange of a word of host memory");
}
void trap(const char* why) { running_machine().fail(running_lane(), "trap: %s", why); }

}  // namespace rondo::simt
