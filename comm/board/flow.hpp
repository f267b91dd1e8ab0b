// SPDX-License-Identifier: Apache-2.0
// A call's chunks on their way from rank to rank through the rings. Every source puts its chunk into its ring, and a
// call's only source into all rings in turn (publish), everybody may work on what was put there (fold), and every sink
// takes what it needs (consume). Each rank does whatever is ready, what is nearest to the end first, and tells the
// others by its progress line how far it is, so it may run a window of chunks ahead of them and needs no other meeting
// than the first, which compares calls. What one call leaves in the rings, whoever put it there, is overwritten at the
// earliest by the next but one, or by the next after its meeting, which proves that it was read; what it leaves in
// their window, when progress lines say that it was read. Used by the thread that runs the collective.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "comm/board/board.hpp"
#include "comm/board/rings.hpp"
#include "comm/tuning.hpp"
#include "kernels/algorithms/ranges.hpp"

namespace rondo::comm {

class Flow {
 public:
  static constexpr int kEverybody = Board::kEverybody;
  struct Plan {                   // the same on all ranks
    std::size_t count = 0;        // elements, of the longest block
    std::size_t step = 1;         // of them in a chunk
    std::size_t place_bytes = 0;  // of a chunk in the rings;
    bool folds = false;
    bool apart = false;                          // places keep the rings' gap between each other
    bool handed = true;                          // of two ranks: each may write next where it was the last to read
    int source = kEverybody, sink = kEverybody;  // or the index of the one that publishes, or consumes
  };
  struct Place {  // of a chunk, in every ring
    std::size_t offset = 0;
    int turn = 0;            // a rank's is in the ring of the rank so many further on
    std::uint32_t line = 0;  // not 0: a few bytes, in arrival lines: 1 + the last bit of their meeting's number
  };
  // It goes from hand to hand in registers. In memory it would be read as a vector while its words are being written
  // behind all those of the chunk before, and wait for these.
  static_assert(sizeof(Place) == 16);
  static constexpr auto kNothing = [](kernels::Range, Place) {};  // for run()

  Flow(Team& team, Board& board, const Tuning& tuning);

  // A window has room for two places where everybody puts, and in every ring for one of an only source.
  std::size_t most_place_bytes(int source = kEverybody) const {
    return rings_.window_bytes() / (source == kEverybody ? 2 : 1) / kLine * kLine;
  }
  std::size_t most_call_bytes() const { return rings_.capacity(); }  // in one place
  std::byte* at(int index, Place place) const {
    if (place.line != 0) return board_.payload(index, place.line - 1);
    const int ring = index + place.turn;
    return rings_.at(ring < size_ ? ring : ring - size_, place.offset);
  }

  // Whether a rank of such a call writes only where it was the last to read, so that the lines are in its own caches:
  // two ranks, each of which takes what the other brings. What one folds it must put where it found the other's.
  bool hands_over(const Plan& plan) const;
  bool hands_over() const { return hands_over_; }  // the latest

  // After Board::settle(), on all ranks: a place of at most most_call_bytes() for a call that is not run here. It may
  // be overwritten from the next call but one on.
  Place reserve(std::size_t bytes) { return {.offset = rings_.reserve(bytes)}; }

  // Each of them is called with a chunk (elements of a block) and its place, chunks in order. Returns when this rank
  // has nothing more to do.
  template <class Publish, class Fold, class Consume>
  void run(const Plan& plan, Publish publish, Fold fold, Consume consume) {
    begin(plan);
    for (Stage stage = next(); stage != kNone; stage = next()) {
      const kernels::Range chunk = chunk_of(stage);
      const Place place = place_of(stage);
      if (stage == kPublish) publish(chunk, place);
      if (stage == kFold) fold(chunk, place);
      if (stage == kConsume) consume(chunk, place);
      advance(stage);
    }
    end();
  }

 private:
  enum Stage : std::size_t { kPublish, kFold, kConsume, kNone };
  static_assert(kNone == ProgressLine::kStages);
  using Counts = std::array<std::size_t, kNone>;  // chunks, by stage
  struct Window {                                 // in which a call turned: what the next one must know
    std::size_t place_bytes = 0, places = 0;
    int source = kEverybody;
    std::size_t slot = 0;   // of the place that comes next
    std::uint64_t end = 0;  // chunks of all calls up to that call's end
  };

  void begin(const Plan& plan);
  Stage next();
  void advance(Stage stage);
  void end();
  void look_who_is_here();
  int awaited() const;
  bool ready(Stage stage);
  bool overwritable(std::size_t chunk);
  bool all_passed(Stage stage, std::uint64_t chunks, bool everybody = false);  // or all that take part
  void tell(Stage stage, std::uint64_t chunks);
  void enter_window();
  void enter_shared();
  std::size_t ahead_bytes() const;
  std::size_t window_bytes() const;
  bool earlier_was_read(std::size_t chunk);
  bool takes_part(Stage stage, int index) const;
  void wait();
  bool is_behind(int index) const;
  kernels::Range chunk_of(Stage stage) const;
  Place place_of(Stage stage) const;

  Board& board_;
  Segment segment_;
  Rings rings_;
  std::size_t ahead_bytes_, warm_bytes_;
  int index_, size_;
  std::uint64_t before_ = 0;  // chunks of all calls up to this one: where everybody's counters began
  Plan plan_;
  std::size_t chunks_ = 0, window_ = 1;
  bool hands_over_ = false;                   // this call
  int handed_ = 0;                            // which ring is whose: 1, rank 0 writes next to ring 1
  bool turns_ = false;                        // in the rings' window
  std::size_t rings_used_ = 1;                // by the places of one rank
  Place first_;                               // of the window; the others lie in these rings in turn
  std::size_t slot_ = 0;                      // of the first chunk
  Counts done_{}, todo_{};                    // by this rank
  std::array<std::uint64_t, kNone> known_{};  // that all others of a stage are known to have done, of all calls
  Window latest_window_;                      // which this call turned in, or one before it
  std::uint64_t earlier_ = 0;                 // chunks of all calls, the last of which lie in this one's places
  bool alike_ = false;                        // as this one's lie there
  bool arrived_ = false, all_here_ = false;   // all that this rank needs
  int blocked_by_ = 0;                        // whose turn it is when nothing is ready,
  Stage blocked_in_ = kPublish;               // at what, and up to which chunk of all calls
  std::uint64_t blocked_until_ = 0;
};

}  // namespace rondo::comm
