// SPDX-License-Identifier: Apache-2.0
// The collectives over buffers that peers can reach: all meet and say where their buffers lie, then a share for each
// rank is moved straight between them. Nothing is published. Share r of a sum is part r of all inputs, folded in rank
// order into every output at once: each byte of an input is read once, and each byte of an output written once. Where
// all buffers are within reach anybody may do any share (Claims); else everybody does its own, and all meet again.
// Where they are ordinary memory of processes, the kernel copies them (CopiedCollectives), if that is faster than the
// rings: calls of a kind are tried both ways, each rank tells the others at the next one how long the latest took from
// when all had come, and all choose what took the slowest of them less. Once that is known, or the root's buffer was
// within reach in the last call of the kind, who copies from or to a root waits for nobody else.
// Roots, blocks and counts are those of the ranks that share the segment, by their index there (see Board).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/collective.hpp>

#include "comm/base/ticks.hpp"
#include "comm/call/blocks.hpp"
#include "comm/node/meeting/board.hpp"
#include "comm/node/meeting/claims.hpp"
#include "comm/node/memory/reach.hpp"
#include "comm/node/policy/chooser.hpp"
#include "comm/node/ways/balance.hpp"
#include "comm/node/ways/copied_collectives.hpp"
#include "comm/node/ways/way_times.hpp"
#include "kernels/algorithms/ranges.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

class DirectCollectives {
 public:
  // All must outlive it.
  DirectCollectives(Team& team, const Chooser& chooser, Board& board, Windows& windows);

  static constexpr std::string_view kName = "zero_copy";
  std::string_view name() const { return copied_now_ ? CopiedCollectives::kName : kName; }  // of the latest that went,
  Reason why() const { return copied_now_ ? chooser_.why_copied(call_) : chooser_.why_in_place(); }  // and why it did
  // Whether the call should meet to find out. All ranks agree on the answer; ask once per call.
  bool may_take(const Call& call);
  // After Board::begin(). False: not everything needed lies where peers reach it, and all ranks have found so; the
  // buffers are untouched, and the call takes another way, whose end is told.
  bool run(const Call& call);
  void went_another_way();
  std::string_view why_not() const { return why_not_; }  // the latest call: may_take() or run() said no

  // For calls whose ranks tell each other otherwise what lies where: body() may find, then pull.
  const Reach& reach() const { return reach_; }
  template <class Body>
  void guarded(Body body) {
    reach_.windows().look();
    try {
      body();
    } catch (const std::exception& error) {
      retreat(error);
      throw;
    }
  }
  struct Pull {
    std::byte* into = nullptr;
    const std::byte* from = nullptr;  // that rank's, by index; where it is fetched, an address in its process
    int whose = 0;
    std::size_t bytes = 0;
  };
  // Of all that have met; they meet again. fetches: the kernel copies what other ranks have.
  void pull(const Call& call, std::span<const Pull> pieces, kernels::Stores stores, bool fetches);
  bool may_fetch() const { return team_.copies_memory(); }

 private:
  using Range = kernels::Range;
  struct Line {  // what a rank says in its arrival line
    Spot send, recv;
    double said = 1;         // the factor of a premultiplied sum; else took_us of the Outlook
    std::uint64_t came = 0;  // read_ticks()
  };
  static_assert(sizeof(Line) == Arrival::kPayload);  // in the arrival line's first cache line
  // A kind of call that did not go direct is tried again at the 2nd, 4th, 8th … of its kind. All ranks count alike.
  struct Outlook {
    std::uint64_t kind = 0;
    std::uint8_t misses = 0, skip = 0;
    WayTimes times;
    Balance balance;
    bool backwards = false;     // the latest: see Sweep
    bool root_reached = false;  // the latest: it went straight, and all reach that end of the call
    float took_us = 0;  // the latest that met and could be copied, until this rank had done its own; 0: there is none
    void missed() {
      if (misses < 6) ++misses;
      skip = static_cast<std::uint8_t>(1 << misses);
    }
  };

  static constexpr std::size_t kKinds = 256;  // that are remembered; two that fall on one place forget each other

  void load(const Call& call);
  std::string_view find_obstacle(const Call& call);
  Outlook& outlook(Collective collective, std::size_t bytes);
  Line announce(std::uint64_t meeting, float took_us) const;
  void read_lines(std::uint64_t meeting, const Line& own);
  bool run_with_root(Outlook& kind, bool may_copy);
  void await_root();
  void find_buffers();
  bool choose_way();
  bool all_in_processes() const;
  bool all_in_place() const;
  bool root_in_place() const;
  void move();
  void copy_blocks(int shift);
  float us_between(std::uint64_t begin, std::uint64_t end);  // read_ticks()
  double slowest() const;                                    // what it took, of the latest call of this kind
  // The share of the work that is a rank's, by whoever does it: a part of the message, or what a rank brings or gets.
  void do_share(int whose);
  void reduce(int whose);
  void broadcast(int whose);
  void all_gather(int whose);
  void gather(int whose);
  void copy_with_root(int whose);
  template <class Count, class Part>
  void in_halves(int whose, Count count_of, Part do_part);
  void all_to_all(int whose);
  int nth_after(int whose, int step) const { return (whose + (backwards_ ? size_ - 1 - step : step)) % size_; }

  // in_ and out_ are where the first element lies.
  void fold(std::size_t count);
  void fold_scaled(const kernels::FoldJob& job);
  void spread(std::size_t count);  // in_[0] into all of out_ that it is not itself
  void copy(std::byte* into, const std::byte* from, std::size_t count) { copy_bytes(into, from, count * element_); }
  void copy_bytes(std::byte* into, const std::byte* from, std::size_t bytes);

  void touch();  // from here on peers' buffers are used
  void let_go() { team_.own_line().touching.store(0, std::memory_order_release); }
  void retreat(const std::exception& error);
  // Of what is there for both, what the call's root has for all.
  template <class T>
  T& of_root(T& recv, T& send) const {
    return row_of(call_.collective).recv_at_root ? recv : send;
  }
  bool reaches_all(const std::vector<std::byte*>& buffers) const;

  std::size_t send_bytes(int index) const;
  std::size_t recv_bytes(int index) const;
  std::size_t bytes_of(Extent extent, int index) const;
  Range block(int index) const;
  std::byte* of(const std::vector<std::byte*>& buffers, int index, std::size_t element) const {
    return buffers[static_cast<std::size_t>(index)] + element * element_;
  }

  Team& team_;
  Board& board_;
  Claims claims_;
  CopiedCollectives copied_;
  Reach reach_;
  const Chooser& chooser_;
  const int rank_, size_;  // index and number in the segment
  Call call_{};
  std::size_t element_ = 1, bytes_ = 0;  // of a rank's larger buffer
  kernels::Stores stores_{};
  bool scales_ = false;  // inputs are multiplied by their rank's factor
  InPlace way_{};
  int shares_ = 1;                                // of them all
  bool backwards_ = false;                        // see Sweep
  bool pulled_backwards_ = false;                 // the latest pull()
  bool root_alone_ = false;                       // nobody has waited for anybody else
  std::vector<std::byte*> send_, recv_;           // by index, null: unreachable
  std::vector<Line> lines_;                       // what the ranks said, by index
  std::vector<Range> blocks_;                     // of what is copied, by index,
  std::vector<std::uint64_t> send_at_, recv_at_;  // and the addresses in the ranks' processes
  std::vector<double> factors_;
  std::vector<std::size_t> offsets_;  // of blocks of variable length
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::vector<std::byte> scratch_;
  std::array<Outlook, kKinds> outlooks_{};
  std::string_view why_not_;
  bool may_copy_ = false, copied_now_ = false;  // the latest call
  TickScale scale_;
  double us_per_tick_ = 0;
  std::uint32_t timed_calls_ = 0;
  std::uint64_t all_came_ = 0;  // ticks, to the latest call that met,
  std::uint64_t left_ = 0;      // and when it went on another way,
  std::uint64_t did_own_ = 0;   // or when this rank had copied what was its to copy
  Outlook* timed_ = nullptr;    // of a call that has met and goes another way
};

}  // namespace rondo::comm
