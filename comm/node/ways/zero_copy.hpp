// SPDX-License-Identifier: Apache-2.0
// The collectives over buffers that peers can reach: all meet and say where their buffers lie, then a share for each
// rank is moved straight between them. Nothing is published. Share r of a sum is part r of all inputs, folded in rank
// order into every output at once: each byte of an input is read once, and each byte of an output written once. Where
// all buffers are within reach anybody may do any share (Claims); else everybody does its own, and all meet again.
// Where they are ordinary memory of processes, the kernel copies them (SingleCopy), if that is faster than the
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
#include "comm/node/ways/call_frame.hpp"
#include "comm/node/ways/single_copy.hpp"
#include "comm/node/ways/way_times.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

class ZeroCopy {
 public:
  // All must outlive it.
  ZeroCopy(Team& team, const Chooser& chooser, Board& board, Windows& windows);

  static constexpr std::string_view kName = "zero_copy";
  // Of the latest call that went: how, and why. Of the latest that did not: why not.
  std::string_view name() const { return latest_ == Went::copied ? SingleCopy::kName : kName; }
  Reason why() const { return latest_ == Went::copied ? why_copied_ : chooser_.why_in_place(); }
  std::string_view why_not() const { return why_not_; }
  // Whether the call should meet to find out. All ranks agree on the answer; ask once per call.
  bool may_take(const Call& call);
  // After Board::begin(). False: not everything needed lies where peers reach it, and all ranks have found so; the
  // buffers are untouched, and the call takes another way, whose end is told.
  bool run(const Call& call);
  void went_another_way();

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
  void pull(const CallFrame& call, std::span<const Pull> pieces, kernels::Stores stores, bool fetches);
  bool may_fetch() const { return team_.copies_memory(); }

 private:
  using Range = kernels::Range;
  static_assert(sizeof(Told) == Arrival::kPayload);  // in the arrival line's first cache line
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
  struct Frame : CallFrame {
    kernels::Stores stores{};
    bool backwards = false;  // see Sweep
  };
  // What all have to do once they have met.
  struct Move : Frame {
    InPlace way{};
    int shares = 1;                               // of them all
    std::span<std::byte*const> sends{}, recvs{};  // by index
    std::byte* send_of(int rank, std::size_t at) const { return sends[as_size(rank)] + at * element; }
    std::byte* recv_of(int rank, std::size_t at) const { return recvs[as_size(rank)] + at * element; }
  };
  enum class Went : std::uint8_t { elsewhere, straight, copied };
  struct Timed {  // of a call that has met and goes another way
    Outlook* kind = nullptr;
    std::uint64_t since = 0;  // ticks
  };

  static constexpr std::size_t kKinds = 256;  // that are remembered; two that fall on one place forget each other

  std::string_view find_obstacle(const Call& call);
  Outlook& outlook(Collective collective, std::size_t bytes);
  Went run_with_all(const Frame& frame, Outlook& kind, bool may_copy);
  Went run_with_root(const Frame& frame, Outlook& kind, bool may_copy);
  Told announce(const Frame& frame, std::uint64_t meeting, float took_us) const;
  std::uint64_t meet(const Frame& frame, float took_us);  // ticks: when all had come
  void await_root(const Frame& frame);
  void find_buffers(const Frame& frame);
  InPlace choose_way(const Frame& frame) const;
  bool all_in_processes(const Frame& frame) const;
  bool all_in_place(const Frame& frame) const;
  bool root_in_place(const Frame& frame) const;
  // root_alone: nobody has waited for anybody else.
  void move(const Frame& frame, const InPlace& way, bool root_alone);
  std::uint64_t copy_blocks(const Frame& frame, int shift);  // ticks: when this rank had copied what was its to copy
  float us_between(std::uint64_t begin, std::uint64_t end);  // read_ticks()
  double slowest() const;                                    // what it took, of the latest call of this kind
  // The share of the work that is a rank's, by whoever does it: a part of the message, or what a rank brings or gets.
  void do_share(const Move& move, int whose);
  void reduce(const Move& move, int whose);
  void broadcast(const Move& move, int whose);
  void all_gather(const Move& move, int whose);
  void gather(const Move& move, int whose);
  void copy_with_root(const Move& move, int whose);
  template <class Count, class Part>
  void in_halves(const Move& move, int whose, Count count_of, Part do_part);
  void all_to_all(const Move& move, int whose);

  // in_ and out_ are where the first element lies.
  void fold(const Frame& frame, std::size_t count);
  void fold_scaled(const Frame& frame, const kernels::FoldJob& job);
  void spread(const Frame& frame, std::size_t count);  // in_[0] into all of out_ that it is not itself
  void copy(const Frame& frame, std::byte* into, const std::byte* from, std::size_t count) const {
    copy_bytes(into, from, count * frame.element, frame.stores, frame.backwards);
  }
  void copy_bytes(std::byte* into, const std::byte* from, std::size_t bytes, kernels::Stores stores,
                  bool backwards) const;

  void touch();  // from here on peers' buffers are used
  void let_go() { team_.own_line().touching.store(0, std::memory_order_release); }
  void retreat(const std::exception& error);
  // Of what is there for both, what the call's root has for all.
  template <class T>
  static T& of_root(const Frame& frame, T& recv, T& send) {
    return frame.row.recv_at_root ? recv : send;
  }
  bool reaches_all(const std::vector<std::byte*>& buffers) const;

  Team& team_;
  Board& board_;
  Claims claims_;
  SingleCopy copied_;
  Reach reach_;
  const Chooser& chooser_;
  const int rank_, size_;  // index and number in the segment
  std::array<Outlook, kKinds> outlooks_{};
  bool pulled_backwards_ = false;  // the latest pull()
  Went latest_ = Went::elsewhere;  // for the log, with its reason
  std::string_view why_not_;
  Reason why_copied_;
  Timed timed_;
  TickScale scale_;
  double us_per_tick_ = 0;
  std::uint32_t timed_calls_ = 0;
  // Room for a call.
  std::vector<std::byte*> send_, recv_;  // by index, null: unreachable
  std::vector<Told> told_;               // by index
  std::vector<std::size_t> offsets_;     // of blocks of variable length
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::vector<std::byte> scratch_;
};

}  // namespace rondo::comm
