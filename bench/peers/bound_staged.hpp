// SPDX-License-Identifier: Apache-2.0
// The bound in shared memory where copies are what a call takes. Every rank has a ring of slots in the segment; a call
// goes piece by piece: a rank brings what the others need of it into its next slot, sums its part of the piece if the
// parts are summed first, takes what it needs from the others' slots, and goes on to the next piece. Where that gains,
// a rank takes a piece and brings the next one by turns, so that memory is read and written all the time, or waits for
// nobody while it has a slot to fill. What is summed is read where the others left it, and a rank's own part where it
// has always been. Each rank tells how many pieces it has brought, summed and taken; a slot is written again when
// everybody has read it.
#pragma once
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "bound.hpp"
#include "bound_stores.hpp"

namespace rondo::peers {

class BoundStaged : public Library {
 public:
  static constexpr std::size_t kRing = 4 << 20;  // bytes that a rank has

  // Before the ranks are forked.
  static std::byte* create(int np) { return shared_memory(bytes_of(np)); }

  BoundStaged(std::byte* shared, int rank, int np, const Cores& cores)
      : shared_(shared), rank_(rank), np_(np), cores_(cores), sources_(as_size(np)) {
    ::madvise(shared, bytes_of(np), MADV_POPULATE_WRITE);
  }

  void prepare(const Cell& cell, float* in, float* out) override {
    cell_ = cell, in_ = cell.is(Collective::broadcast) ? out : in, out_ = out;
    from_root_ = cell.is(Collective::broadcast) || cell.is(Collective::scatter);
    to_root_ = cell.is(Collective::reduce) || cell.is(Collective::gather);
    sums_first_ = cell.is(Collective::all_reduce) || cell.is(Collective::reduce);
    has_parts_ = cell.is(Collective::scatter) || cell.is(Collective::all_to_all) || cell.is(Collective::reduce_scatter);
    unit_ = has_parts_ || cell.gathers() ? cell.block() : cell.count;
    lay_out(variant());
    kept_ = kept(cell, true);
    brought_as_ = kept_ == Stores::streamed ? Stores::fetched : Stores::cached;
    known_.fill(before_);
    for (Stage stage : {kBrought, kSummed, kTaken}) counter(rank_, stage).store(before_, std::memory_order_release);
  }

  void run() override {
    order_ == Order::free ? run_freely() : run_in_step();
    before_ += pieces_;
    if (kept_ == Stores::streamed) fence();
  }
  const float* result() override { return out_; }

 private:
  enum Stage : std::size_t { kBrought, kSummed, kTaken, kStages };
  // Of the pieces: in_step, everybody brings one, then takes it; ahead, a rank brings the next one while it takes one;
  // free, it takes what is there, else brings what it has room for.
  enum class Order { in_step, ahead, free };
  using Counter = std::atomic<std::uint64_t>;
  struct Range {  // floats of the unit
    std::size_t first, count;
  };
  struct Copy {
    float* to;
    const float* from;
    std::size_t count;
    Stores how;
    float* also;
  };
  enum class Shape { exchange, gather, sum, broadcast, scatter };
  // In the first row that fits a call: bytes of a slot, and of all slots of a rank. A piece is what fits a slot.
  struct Variant {
    Shape shape;
    bool has_core;
    std::size_t to_bytes;  // of the call
    int to_ranks;
    std::size_t slot, ring;
    Order order;
  };
  static constexpr std::size_t kLine = 128, kGrain = 16, kTurn = 1024;  // bytes; floats
  // Between slots: at a large power of two from each other they would fall on the same lines of the nearest caches.
  static constexpr std::size_t kApart = 2048 + kLine;
  static constexpr std::size_t kAny = ~std::size_t{0};
  static constexpr int kMany = 1 << 16;
  static constexpr Variant kVariants[] = {
      {Shape::sum, true, kAny, kMany, 1 << 20, 1040 << 10, Order::in_step},
      {Shape::sum, false, 16 << 20, 4, 512 << 10, 1100 << 10, Order::in_step},
      {Shape::sum, false, kAny, kMany, 512 << 10, 1 << 20, Order::in_step},
      {Shape::exchange, true, 1 << 20, kMany, 512 << 10, 2 << 20, Order::in_step},
      {Shape::exchange, true, 16 << 20, kMany, 256 << 10, 1 << 20, Order::in_step},
      {Shape::exchange, true, kAny, kMany, 512 << 10, 1040 << 10, Order::free},
      {Shape::exchange, false, 4 << 20, 4, 240 << 10, 500 << 10, Order::ahead},
      {Shape::exchange, false, 4 << 20, kMany, 512 << 10, 1 << 20, Order::in_step},
      {Shape::exchange, false, kAny, kMany, 1 << 20, 1 << 20, Order::in_step},
      {Shape::gather, true, 1 << 20, kMany, 512 << 10, 2 << 20, Order::in_step},
      {Shape::gather, true, kAny, kMany, 256 << 10, 1 << 20, Order::in_step},
      {Shape::gather, false, 1 << 20, kMany, 64 << 10, 512 << 10, Order::in_step},
      {Shape::gather, false, kAny, kMany, 128 << 10, 512 << 10, Order::in_step},
      {Shape::broadcast, true, kAny, kMany, 64 << 10, 2 << 20, Order::in_step},
      {Shape::broadcast, false, 1 << 20, kMany, 64 << 10, 2 << 20, Order::in_step},
      {Shape::broadcast, false, kAny, kMany, 64 << 10, 4 << 20, Order::in_step},
      {Shape::scatter, true, kAny, kMany, 64 << 10, 2 << 20, Order::in_step},
      {Shape::scatter, false, 1 << 20, kMany, 64 << 10, 2 << 20, Order::in_step},
      {Shape::scatter, false, kAny, kMany, 512 << 10, 4 << 20, Order::in_step},
  };

  static std::size_t as_size(int number) { return static_cast<std::size_t>(number); }
  static std::size_t bytes_of(int np) { return as_size(np) * (kRing + kStages * kLine); }
  Counter& counter(int rank, Stage stage) const {
    return *reinterpret_cast<Counter*>(shared_ + as_size(np_) * kRing + (as_size(rank) * kStages + stage) * kLine);
  }

  const Variant& variant() const {
    const Shape of_root = has_parts_ ? Shape::scatter : Shape::broadcast;
    const Shape shape = from_root_ ? of_root : sums_first_ ? Shape::sum : has_parts_ ? Shape::exchange : Shape::gather;
    return *std::find_if(std::begin(kVariants), std::end(kVariants), [&](const Variant& row) {
      return row.shape == shape && row.has_core == cores_.has_core() && cell_.count * 4 <= row.to_bytes &&
             np_ <= row.to_ranks;
    });
  }
  void lay_out(const Variant& variant) {
    const std::size_t parts = has_parts_ ? as_size(np_ - 1) : 1;
    const std::size_t most = std::max(variant.slot / 4 / parts / kGrain * kGrain, kGrain);
    pieces_ = (unit_ + most - 1) / most;
    piece_ = ((unit_ + pieces_ - 1) / pieces_ + kGrain - 1) / kGrain * kGrain;
    stride_ = (piece_ * parts * 4 + kApart + kLine - 1) / kLine * kLine;
    order_ = variant.order;
    hands_over_ = np_ == 2 && cores_.has_core() && !from_root_ && !to_root_ && !sums_first_ && order_ != Order::free;
    slots_ = hands_over_ ? 1 : std::max<std::size_t>(variant.ring / stride_, 1);
    if (slots_ == 1) order_ = Order::in_step;
  }
  void run_in_step() {
    const bool ahead = order_ == Order::ahead;
    for (std::size_t piece = 0; piece < pieces_; ++piece) {
      if (!ahead || piece == 0) bring(piece), move(), tell(kBrought, piece);
      if (pieces_ == 1 && !sums_first_ && !from_root_ && !to_root_) cores_.give_way();
      if (sums_first_) await(kBrought, piece), sum_part(piece), tell(kSummed, piece);
      const bool brings_next = ahead && piece + 1 < pieces_;
      if (brings_next) bring(piece + 1);
      take(piece), move();
      if (brings_next) tell(kBrought, piece + 1);
      tell(kTaken, piece);
    }
  }
  void run_freely() {
    std::size_t brought = 0, taken = 0;
    while (taken < pieces_) {
      if (brought > taken && have_all(kBrought, before_ + taken + 1)) {
        take(taken), move(), tell(kTaken, taken++);
      } else if (brought < pieces_ && has_room(brought)) {
        bring(brought), move(), tell(kBrought, brought++);
      }
    }
  }
  bool does(Stage stage, int rank) const {
    if (stage == kBrought) return !from_root_ || rank == 0;
    if (stage == kTaken) return from_root_ ? rank != 0 : !to_root_ || rank == 0;
    return sums_first_;
  }
  void tell(Stage stage, std::size_t piece) {
    if (does(stage, rank_)) counter(rank_, stage).store(before_ + piece + 1, std::memory_order_release);
  }
  // Until everybody else who does it has done this piece.
  void await(Stage stage, std::size_t piece) { await_pieces(stage, before_ + piece + 1); }
  // Of several pieces other ranks of this core have some to work on, so it is given away at once.
  void await_pieces(Stage stage, std::uint64_t pieces) {
    if (known_[stage] >= pieces) return;
    known_[stage] = ~std::uint64_t{0};
    for (int turn = 1; turn < np_; ++turn) {
      const int other = (rank_ + turn) % np_;
      if (!does(stage, other)) continue;
      std::uint64_t its = 0;
      const auto is_ready = [&] { return (its = counter(other, stage).load(std::memory_order_acquire)) >= pieces; };
      if (pieces_ > 1) {
        cores_.until(is_ready);
      } else {
        cores_.until(is_ready, [&](int beside) {
          return !does(stage, beside) || counter(beside, stage).load(std::memory_order_relaxed) >= pieces;
        });
      }
      known_[stage] = std::min(known_[stage], its);
    }
  }
  bool have_all(Stage stage, std::uint64_t pieces) {
    if (known_[stage] >= pieces) return true;
    std::uint64_t known = ~std::uint64_t{0};
    for (int other = 0; other < np_; ++other) {
      if (other != rank_) known = std::min(known, counter(other, stage).load(std::memory_order_acquire));
    }
    known_[stage] = known;
    return known >= pieces;
  }
  bool has_room(std::size_t piece) {
    const std::uint64_t number = before_ + piece;
    return number < slots_ || have_all(kTaken, number + 1 - slots_);
  }
  void await_room(std::size_t piece) {
    const std::uint64_t number = before_ + piece;
    if (number < slots_ || hands_over_) return;
    if (sums_first_) await_pieces(kSummed, number + 1 - slots_);
    await_pieces(kTaken, number + 1 - slots_);
  }

  Range range_of(std::size_t piece) const { return {piece * piece_, std::min(piece_, unit_ - piece * piece_)}; }
  // Two ranks that exchange change rings from piece to piece: each brings to where it was the last to read.
  float* slot(int rank, std::size_t piece) const {
    if (hands_over_) rank = static_cast<int>((as_size(rank) + before_ + piece) & 1);
    return reinterpret_cast<float*>(shared_ + as_size(rank) * kRing + (before_ + piece) % slots_ * stride_);
  }
  // What `from` brings for `to`.
  float* part(int from, int to, std::size_t piece) const {
    return slot(from, piece) + (has_parts_ ? as_size(to < from ? to : to - 1) * piece_ : 0);
  }
  std::size_t block(int rank) const { return as_size(rank) * unit_; }
  // The part of a piece that a rank sums, counted from the piece's begin.
  Range share(int rank, std::size_t count) const {
    const std::size_t each = (count / as_size(np_) + kGrain - 1) / kGrain * kGrain;
    const std::size_t first = std::min(as_size(rank) * each, count);
    return {first, rank == np_ - 1 ? count - first : std::min(each, count - first)};
  }

  // In whose slot a rank shows its sum: of two in the other's, from where it has just read its part.
  int shown_by(int rank) const { return np_ == 2 ? 1 - rank : rank; }

  // Lists what is to be copied: move() does it.
  void bring(std::size_t piece) {
    if (!does(kBrought, rank_)) return;
    await_room(piece);
    const Range range = range_of(piece);
    float* mine = slot(rank_, piece);
    if (has_parts_) {
      for (int turn = 1; turn < np_; ++turn) {
        const int other = (rank_ + turn) % np_;
        brought_.push_back(
            {part(rank_, other, piece), in_ + block(other) + range.first, range.count, brought_as_, nullptr});
      }
      if (from_root_) brought_.push_back({out_ + range.first, in_ + range.first, range.count, kept_, nullptr});
    } else if (sums_first_) {
      const Range own = share(rank_, range.count);
      const std::size_t end = own.first + own.count;
      brought_.push_back({mine, in_ + range.first, own.first, brought_as_, nullptr});
      brought_.push_back({mine + end, in_ + range.first + end, range.count - end, brought_as_, nullptr});
    } else {
      const bool keeps = cell_.gathers() && does(kTaken, rank_);
      float* kept = keeps ? out_ + block(rank_) + range.first : nullptr;
      brought_.push_back({mine, in_ + range.first, range.count, brought_as_, kept});
    }
  }

  void sum_part(std::size_t piece) {
    const Range range = range_of(piece), own = share(rank_, range.count);
    for (int other = 0; other < np_; ++other) sources_[as_size(other)] = slot(other, piece) + own.first;
    sources_[as_size(rank_)] = in_ + range.first + own.first;
    float* shown = to_root_ && rank_ == 0 ? nullptr : slot(shown_by(rank_), piece) + own.first;
    if (!does(kTaken, rank_)) return sum(shown, nullptr, sources_.data(), np_, own.count, Stores::cached);
    sum(out_ + range.first + own.first, shown, sources_.data(), np_, own.count, kept_);
  }

  void take(std::size_t piece) {
    if (!does(kTaken, rank_)) return;
    await(sums_first_ ? kSummed : kBrought, piece);
    const Range range = range_of(piece);
    if (cell_.is(Collective::reduce_scatter)) {
      for (int other = 0; other < np_; ++other) sources_[as_size(other)] = part(other, rank_, piece);
      sources_[as_size(rank_)] = in_ + block(rank_) + range.first;
      return sum(out_ + range.first, nullptr, sources_.data(), np_, range.count, kept_);
    }
    const bool is_exchange = has_parts_ && !from_root_;
    const std::size_t own = block(rank_) + range.first;
    if (is_exchange) taken_.push_back({out_ + own, in_ + own, range.count, kept_, nullptr});
    for (int turn = 1; turn < np_; ++turn) {
      const int other = from_root_ ? 0 : (rank_ + turn) % np_;
      const Range its = sums_first_ ? share(other, range.count) : Range{0, range.count};
      float* to = out_ + (sums_first_ ? its.first : from_root_ ? 0 : block(other)) + range.first;
      const float* from = sums_first_ ? slot(shown_by(other), piece) : part(other, rank_, piece);
      taken_.push_back({to, from + its.first, its.count, kept_, nullptr});
      if (from_root_) break;
    }
  }

  // What bring() and take() have listed; of both, a few lines of each by turns.
  void move() {
    const std::size_t most = brought_.empty() || taken_.empty() ? kAny : kTurn;
    std::size_t brought = 0, taken = 0;
    while (brought < brought_.size() || taken < taken_.size()) move(brought_, brought, most), move(taken_, taken, most);
    brought_.clear(), taken_.clear();
  }
  static void move(std::vector<Copy>& copies, std::size_t& at, std::size_t most) {
    if (at == copies.size()) return;
    Copy& left = copies[at];
    const std::size_t count = std::min(left.count, most);
    copy(left.to, left.from, count, left.how, left.also);
    left = {left.to + count, left.from + count, left.count - count, left.how, left.also ? left.also + count : nullptr};
    if (left.count == 0) ++at;
  }

  std::byte* shared_;  // rings, then counters
  int rank_, np_;
  const Cores& cores_;
  std::vector<const float*> sources_;  // of a sum
  std::vector<Copy> brought_, taken_;
  Cell cell_;
  const float* in_ = nullptr;
  float* out_ = nullptr;
  bool from_root_ = false, to_root_ = false, has_parts_ = false;
  bool sums_first_ = false;  // each rank a part, which the others take
  bool hands_over_ = false;  // see slot()
  Order order_ = Order::in_step;
  std::size_t unit_ = 0, piece_ = kGrain;            // floats for one rank, in pieces of so many
  std::size_t pieces_ = 0, stride_ = 0, slots_ = 1;  // bytes between slots; how many
  Stores kept_ = Stores::cached, brought_as_ = Stores::cached;
  std::uint64_t before_ = 0;                    // pieces of all calls before
  std::array<std::uint64_t, kStages> known_{};  // that all others have done
};

}  // namespace rondo::peers
