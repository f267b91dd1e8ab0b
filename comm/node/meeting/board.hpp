// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one node meet in shared memory: each puts what the others need into its own ring or arrival line,
// all arrive, and each reads from all. What a rank has put there for one meeting may be overwritten after the next one,
// since its readers' arriving there proves that they have read it; so two arrival lines are enough. Two ranks change
// lines from meeting to meeting, so that each writes the one that it was the last to read, which its caches hold: what
// a rank has put into its own is the other's to overwrite as soon as that has gone on. Who needs nothing of some ranks
// may leave before they have come, and sees that they have when the next meeting begins. Ranks are called by their
// index in the segment, in the order of their ranks in the team, of which they may be a part. Used by the thread that
// runs the collective.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "comm/base/machine.hpp"
#include "comm/base/ticks.hpp"
#include "comm/node/meeting/rseq.hpp"
#include "comm/node/meeting/spread.hpp"
#include "comm/node/policy/thresholds.hpp"
#include "comm/team/team.hpp"
#include "comm/team/waiter.hpp"

namespace rondo::comm {

class Board {
 public:
  Board(Team& team, const Config& config);
  ~Board() { rejoin_rseq(); }
  Board(const Board&) = delete;

  int index() const { return index_; }
  bool crowded() const { return crowded_; }  // more ranks than cores
  // Where this rank is, and whether too many others are too: in every few calls, in every wait, and in each long call.
  void look_around();
  int ranks_on_a_core() const { return spread_.share(); }
  int cores() const { return cores_; }                 // that ranks are on; as all know it
  int turn_of_core() const { return spread_.turn(); }  // see Spread
  int size() const { return size_; }
  int rank_of(int index) const { return ranks_[static_cast<std::size_t>(index)]; }  // in the team
  // Every collective of the communicator, on the board or not, before it begins: who meets compares them all.
  // Its number and what hash_of() gives are aside: a number that has just been written into a signature would hold up
  // whoever reads words of it two at a time.
  const Signature& note(const Signature& signature, std::uint64_t sequence, std::uint64_t hash) {
    constexpr std::uint64_t kOdd = 0xd6e8feb86659fd93;
    signature_ = signature;
    signature_.sequence = sequence;
    key_ = (key_ ^ hash) * kOdd;
    key_ ^= key_ >> 32;
    return signature_;
  }
  const Signature& signature() const { return signature_; }  // the latest
  std::uint64_t key() const { return key_; }                 // of all that were noted, in their order
  void begin(std::chrono::milliseconds timeout) {            // of the one noted last
    timeout_ = timeout;
    first_ = true;
    waiting_ = false;
  }
  static constexpr int kNobody = -1, kEverybody = -2;

  // Before anything is written for the next meeting: all have come to the last one, so the one before it was read,
  // whoever had put it wherever.
  void settle() {
    if (meetings_ != 0 && seen_ < size_) await_the_rest();
  }
  // Before anything is written beside or behind this rank's next arrival alone: those who read its last but one have
  // come to the last one.
  void settle_own() {
    if (seen_ == size_) return;
    const int reader = readers_[(meetings_ + 1) & 1];
    if (reader == kEverybody) return settle();
    if (reader != kNobody && !has_come(reader)) await_reader(reader);
  }

  // Of who goes on before a rank has come: settle() will look for it, and finds its line in this core's caches by then.
  void fetch_for_settling(int index) const { __builtin_prefetch(&arrived(index)); }

  // The arrival line of the next meeting, as a place for a few bytes: its number, or 0 when they are too many or the
  // line is taken.
  std::uint64_t take_line(std::size_t bytes);
  std::byte* payload(int index, std::uint64_t meeting) const { return arrival(index, meeting).payload.data(); }

  // Arrives and waits until all ranks have. Throws the communicator's failure, a mismatch with the rank it names.
  void meet() {
    settle();
    arrive();
    give_way();
    await_all();
  }
  [[gnu::always_inline]] void await_all();
  // That one alone. polls: looks at a rank of another core before this one's is given away.
  [[gnu::always_inline]] void await(int index, int polls = 0);
  // After arrive(), before a first look at those who come at the same time: for as long as it takes to read the clock
  // so many times, commonly readings(usual): once where that takes long.
  int readings(int usual) const { return slow_clock_ ? std::min(usual, 1) : usual; }
  void hold_back(int readings) {
    for (int i = 0; i < readings; ++i) saw_ = read_ticks();
  }
  // Since arrive(): read_ticks() before the look that found those awaited there; 0: it was not read, or it took long.
  std::uint64_t saw() const { return saw_; }
  // After arrive(), where everybody waits for everybody and ranks take turns on cores: those who came before go on
  // before who came last. Else the last one would be the first in the next call, and some rank would wait a turn longer
  // in every call. In other calls it would only hold up whoever waits for this rank.
  [[gnu::always_inline]] void give_way();

  // The same in pieces, for those who have something else to do meanwhile: who has not arrived yet, or kNobody; a short
  // wait for a rank, after which the caller looks again; and that what was waited for has come.
  // read_by: who may await this arrival; of two ranks the other one may always.
  std::uint64_t meeting() const { return meetings_; }  // the latest, counted from 1
  void arrive(int read_by = kEverybody) {
    readers_[(meetings_ + 1) & 1] = read_by;
    post();
    wake();
  }
  // After a release store that others may be waiting for.
  void wake() const;
  // Between a store and a load. A real one would wait until the peers' cores have given up the lines that this rank has
  // stored to, which takes as long as their answer: whoever sleeps or fails fences for everybody (Doorbells::fence).
  void fence() const {
    if (fences_) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }
  int absent();
  bool is_here(int index);  // throws the mismatch too
  // Or is further, when this rank is none of those who read its arrival.
  bool has_come(int index) const { return arrived(index).meeting.load(std::memory_order_acquire) >= meetings_; }
  [[gnu::always_inline]] void idle(int index);
  // idle() of those who have nothing else to do. is_behind(other): that rank has yet to do what this one waits for.
  // Who shares its core with such a rank gives it away at once; others are on their way elsewhere.
  template <class Behind>
  [[gnu::always_inline]] void linger(int index, Behind is_behind) {
    if (!crowded_ || spun_ >= threshold::kCrowdPolls || is_needed_here(is_behind)) return idle(index);
    ++spun_;
    pause_cpu();
  }
  void progressed() {
    spun_ = 0;
    if (waiting_) waiter_.progressed();
  }

  // For those who bring bytes: where this rank's go before it arrives, and where a rank's lie that has come.
  Arrival& next() const { return arrival(index_, meetings_ + 1); }
  Arrival& arrived(int index) const { return arrival(index, meetings_); }
  // Room for more bytes than fit beside the flag, in the latest arrival (or the next) that brings so many, the turn-th;
  // all ranks take it in the same calls.
  std::uint64_t take_body() { return ++bodies_; }
  std::byte* body(int index, std::uint64_t turn) const { return arrival(index, turn).body.data(); }
  RankLine& own_line() const { return lines_[index_]; }

 private:
  Arrival& arrival(int index, std::uint64_t turn) const {
    return *arrivals_[2 * static_cast<std::uint64_t>(index) + (turn & 1)];
  }
  void post();
  void await_the_rest();
  void await_reader(int index);
  template <class Behind>
  bool is_needed_here(Behind is_behind) const {
    for (int other = 0; other < size_; ++other) {
      if (other != index_ && spread_.is_beside(other) && is_behind(other)) return true;
    }
    return false;
  }
  // With a core of its own.
  void look_for_all();
  void look_for(int index);
  [[gnu::always_inline]] void linger_for(int index) {
    linger(index, [this](int other) { return !has_come(other); });
  }
  // For a while it reads the clock between looks: that takes less than half a pause, and tells when they came.
  void look_again(int index, int& looks) {
    if (!crowded_ && looks < threshold::kTimedLooks) {
      ++looks;
      saw_ = read_ticks();
      return;
    }
    saw_ = 0;
    linger_for(index);
  }
  [[noreturn]] void disagree(int index);

  Team& team_;
  Waiter waiter_;
  Spread spread_;
  RankLine* lines_;  // of all
  int index_, size_, cores_;
  std::vector<Arrival*> arrivals_;  // of each rank two, in turn; two ranks have two in common
  std::vector<int> ranks_;          // in the team, by index
  std::uint64_t meetings_ = 0;
  std::uint64_t bodies_ = 0;    // taken
  std::uint64_t saw_ = 0;       // see saw()
  std::uint64_t spun_ = 0;      // polls of this wait, up to when the core was given away
  std::array<int, 2> readers_;  // of this rank's two arrivals
  int seen_ = 1;                // steps round the ranks up to the first that has not arrived
  bool line_taken_ = false;     // of the next meeting
  bool first_ = false;          // the next meeting is the first of its collective: keys are compared
  bool compares_ = false;       // the latest was
  bool waiting_ = false;        // waiter_ has been told of this collective
  bool crowded_, leaves_rseq_;
  bool slow_clock_;       // see readings()
  bool has_met_ = false;  // everybody, once
  bool fences_ = true;    // itself
  Signature signature_;
  // Of everything that the ranks must have agreed on, in that order: up to now, and up to the latest meeting.
  std::uint64_t key_ = 0, met_key_ = 0;
  std::chrono::milliseconds timeout_{};
};

// What every call passes through is here, so that a call is one stretch of code.
inline void Board::post() {
  if (crowded_ && meetings_ % threshold::kMeetingsPerLook == 0) look_around();
  ++meetings_;
  line_taken_ = false;
  seen_ = 1;
  Arrival& mine = arrived(index_);
  mine.key = met_key_ = key_;
  compares_ = std::exchange(first_, false);
  saw_ = 0;
  mine.meeting.store(meetings_, std::memory_order_release);
}

inline void Board::wake() const {
  fence();
  for (int index = 0; index < size_; ++index) {
    if (lines_[index].sleeping.load(std::memory_order_seq_cst) != 0 && index != index_) team_.bells().ring(index);
  }
}

inline bool Board::is_here(int index) {
  if (!has_come(index)) return false;
  if (compares_ && arrived(index).key != met_key_) disagree(index);
  return true;
}

inline int Board::absent() {
  for (; seen_ < size_; ++seen_) {
    const int index = index_ + seen_ < size_ ? index_ + seen_ : index_ + seen_ - size_;
    if (!is_here(index)) return index;
  }
  if (!has_met_) {
    has_met_ = true;
    fences_ = !team_.bells().sleepers_fence();
  }
  return kNobody;
}

inline void Board::idle(int index) {
  if (!crowded_ && spun_++ < threshold::kPolls) return pause_cpu();
  if (crowded_ ? waiting_ : spun_ == threshold::kPolls + 1) look_around();
  if (!std::exchange(waiting_, true)) waiter_.begin(signature_, true, timeout_);
  const Blocked blocked{.peer = rank_of(index), .wake = {}};
  waiter_.idle(std::span(&blocked, 1));
}

inline void Board::give_way() {
  if (!crowded_ || !is_needed_here([](int) { return true; })) return;
  if (!std::exchange(waiting_, true)) waiter_.begin(signature_, true, timeout_);
  waiter_.yield();
}

inline void Board::await_all() {
  if (!crowded_) return look_for_all();
  for (int index = absent(); index != kNobody; index = absent()) linger_for(index);
  progressed();
}

inline void Board::await(int index, int polls) {
  if (!crowded_) return look_for(index);
  while (!is_here(index)) {
    if (polls == 0 || spread_.is_beside(index)) {
      linger_for(index);
    } else {
      --polls;
      pause_cpu();
    }
  }
  progressed();
}

}  // namespace rondo::comm
