// SPDX-License-Identifier: Apache-2.0
// A call's chunks on their way from rank to rank through the rings. Every source puts its chunk into its ring, and a
// call's only source into all rings in turn (publish), everybody may work on what was put there (fold), and every sink
// takes what it needs (consume). Each rank does whatever is ready, what is nearest to the end first, and tells the
// others by its progress line how far it is, so it may run some chunks ahead of them and needs no other meeting
// than the first, which compares calls. What one call leaves in the rings, whoever put it there, is overwritten at the
// earliest by the next but one, or by the next after its meeting, which proves that it was read; what it leaves in
// their reused stretch, when progress lines say that it was read. Used by the thread that runs the collective.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "comm/node/meeting/board.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/rings/rings.hpp"
#include "kernels/algorithms/ranges.hpp"

namespace rondo::comm {

class Flow {
 public:
  static constexpr int kEverybody = RingPlan::kEverybody;
  static_assert(kEverybody == Board::kEverybody);
  using Plan = RingPlan;
  struct Place {  // of a chunk, in every ring
    std::size_t offset = 0;
    int turn = 0;            // a rank's is in the ring of the rank so many further on
    std::uint32_t line = 0;  // not 0: a few bytes, in arrival lines: 1 + the last bit of their meeting's number
  };
  // It goes from hand to hand in registers. In memory it would be read as a vector while its words are being written
  // behind all those of the chunk before, and wait for these.
  static_assert(sizeof(Place) == 16);
  static constexpr auto kNothing = [](kernels::Range, Place) {};  // for run()

  // All must outlive it.
  Flow(Team& team, Board& board, const Chooser& chooser);

  std::size_t most_call_bytes() const { return rings_.capacity(); }  // in one place
  std::byte* at(int index, Place place) const {
    if (place.line != 0) return board_.payload(index, place.line - 1);
    const int ring = index + place.turn;
    return rings_.at(ring < size_ ? ring : ring - size_, place.offset);
  }

  bool hands_over() const { return hands_over_; }  // the latest: see Chooser

  // After Board::settle(), on all ranks: a place of at most most_call_bytes() for a call that is not run here. It may
  // be overwritten from the next call but one on.
  Place reserve(std::size_t bytes) { return {.offset = rings_.reserve(bytes)}; }

  // Each of them is called with a chunk (elements of a block) and its place, chunks in order. Returns when this rank
  // has nothing more to do.
  template <class Publish, class Fold, class Consume>
  void run(const Plan& plan, Publish publish, Fold fold, Consume consume) {
    const Frame frame = begin(plan);
    hands_over_ = frame.course.hands_over;
    Progress progress;
    for (Stage stage = next(frame, progress); stage != kNone; stage = next(frame, progress)) {
      const kernels::Range chunk = chunk_of(frame, progress, stage);
      const Place place = place_of(frame, progress, stage);
      if (stage == kPublish) publish(chunk, place);
      if (stage == kFold) fold(chunk, place);
      if (stage == kConsume) consume(chunk, place);
      advance(frame, progress, stage);
    }
    end(frame);
  }

 private:
  enum Stage : std::size_t { kPublish, kFold, kConsume, kNone };
  static_assert(kNone == ProgressLine::kStages);
  using Counts = std::array<std::size_t, kNone>;  // chunks, by stage
  struct Reuse {                                  // in which a call turned: what the next one must know
    std::size_t place_bytes = 0, places = 0;
    int source = kEverybody;
    std::size_t slot = 0;   // of the place that comes next
    std::uint64_t end = 0;  // chunks of all calls up to that call's end
  };

  struct Frame {
    const Plan& plan;
    RingCourse course{};
    Counts todo{};              // by this rank
    Place first{};              // of those under way; the others lie in these rings in turn
    std::size_t slot = 0;       // of the first chunk
    std::uint64_t earlier = 0;  // chunks of all calls, the last of which lie in this one's places
    bool alike = false;         // as this one's lie there
  };
  struct Progress {
    Counts done{};                             // by this rank
    std::array<std::uint64_t, kNone> known{};  // that all others of a stage are known to have done, of all calls
    bool arrived = false, all_here = false;    // all that this rank needs
    int blocked_by = 0;                        // whose turn it is when nothing is ready,
    Stage blocked_in = kPublish;               // at what, and up to which chunk of all calls
    std::uint64_t blocked_until = 0;
  };

  Frame begin(const Plan& plan);
  void enter_line(Frame& frame, std::uint64_t meeting);
  void enter_reused(Frame& frame);
  void enter_shared(Frame& frame);
  Stage next(const Frame& frame, Progress& progress);
  void advance(const Frame& frame, Progress& progress, Stage stage);
  void end(const Frame& frame);
  void look_who_is_here(const Frame& frame, Progress& progress);
  int awaited(const Frame& frame) const;
  bool ready(const Frame& frame, Progress& progress, Stage stage);
  bool overwritable(const Frame& frame, Progress& progress, std::size_t chunk);
  // everybody: or all that take part.
  bool all_passed(const Frame& frame, Progress& progress, Stage stage, std::uint64_t chunks, bool everybody = false);
  void tell(Stage stage, std::uint64_t chunks);
  bool earlier_was_read(const Frame& frame, Progress& progress, std::size_t chunk);
  static bool takes_part(const Plan& plan, Stage stage, int index);
  void wait(const Frame& frame, const Progress& progress);
  bool is_behind(const Frame& frame, const Progress& progress, int index) const;
  static kernels::Range chunk_of(const Frame& frame, const Progress& progress, Stage stage);
  Place place_of(const Frame& frame, const Progress& progress, Stage stage) const;

  Board& board_;
  Segment segment_;
  const Chooser& chooser_;
  Rings rings_;
  int index_, size_;
  std::uint64_t before_ = 0;  // chunks of all calls up to this one: where everybody's counters began
  int handed_ = 0;            // which ring is whose: 1, rank 0 writes next to ring 1
  bool hands_over_ = false;   // the latest call
  Reuse latest_reuse_;        // which this call turned in, or one before it
};

}  // namespace rondo::comm
