// SPDX-License-Identifier: Apache-2.0
// The bound in shared memory where the ranks' signals are what a call takes. Every rank has a ring of slots; a step of
// a call writes what the others need of this rank into the next slot, and its number with it; who needs it polls the
// slot. A payload of a few bytes lies in the number's own line. Calls of more than kPiece bytes take several steps.
// Buffers are ordinary memory, so everything is copied into the ring and out of it. A slot is written again `slots`
// steps later; two ranks that exchange change slots from step to step, so that each writes where it was the last to
// read. Where everybody takes from everybody, that everybody has taken from it follows from the steps between;
// else each rank tells how many steps it has done, which is looked at once a ring.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bound.hpp"

namespace rondo::peers {

class BoundMemory : public Library {
 public:
  static constexpr std::size_t kLine = 64, kRing = 4 << 20;  // bytes that a rank has, for each of two phases
  static constexpr std::size_t kMostHandedOver = 16 << 10;   // of an exchange by two ranks

  // Before the ranks are forked.
  static std::byte* create(int np) { return shared_memory(bytes_of(np)); }

  BoundMemory(std::byte* shared, int rank, int np, const Cores& cores)
      : shared_(shared), rank_(rank), np_(np), cores_(cores) {
    ::madvise(shared, bytes_of(np), MADV_POPULATE_WRITE);
  }

  void prepare(const Cell& cell, float* in, float* out) override {
    out_ = out;
    phases_.clear();
    if (cell.is(Collective::all_reduce) && np_ > 2 && cell.count * 4 > kMostFlat && cell.count % as_size(np_) == 0) {
      float* own = out + as_size(rank_) * cell.block();
      phases_.push_back(phase(Collective::reduce_scatter, cell.count, in, own));
      phases_.push_back(phase(Collective::all_gather, cell.count, own, out));
    } else {
      phases_.push_back(phase(cell.collective, cell.count, cell.is(Collective::broadcast) ? out : in, out));
    }
    done(rank_).store(taken_ = now_, std::memory_order_release);  // the ranks meet before they call
  }

  void run() override {
    for (const Phase& phase : phases_) {
      if (phase.brings) bring(phase, 0);
      if (phase.gives_way && phases_.size() == 1) cores_.give_way();
      for (std::size_t step = 0; step < phase.steps; ++step, ++now_) {
        if (phase.brings && step + 1 < phase.steps) bring(phase, step + 1, 1);
        keep_own(phase, step);
        if (phase.takes) take(phase, step);
        if (!phase.everybody) done(rank_).store(now_ + 1, std::memory_order_release);
      }
    }
  }
  const float* result() override { return out_; }

 private:
  using Number = std::atomic<std::uint64_t>;
  static constexpr std::size_t kPiece = 32 << 10, kPieceOfMany = 512 << 10;  // bytes a step; with more ranks than cores
  static constexpr std::size_t kPause = 1 << 10;                             // bytes: to copy them takes no less
  static constexpr std::size_t kMostFlat = 4 << 10;  // longer all_reduces of many ranks sum each a part, and gather
  // Payloads that fit the nearest cache take turns between two slots. Longer ones go round the ring: lines that another
  // core still holds are slow to write. There a rank is at most two steps ahead of what another has taken. The rings
  // together are as large as two cores' caches: larger ones push out what the ranks of a core exchange.
  static constexpr std::size_t kMostInPlace = 4 << 10, kTurns = 2, kLeastSlots = 4;
  static constexpr std::size_t kRings = 2 << 20;
  static_assert(kLeastSlots * (kPieceOfMany + 2 * kLine) <= kRing && kPiece <= kPieceOfMany && kMostInPlace <= kPiece);

  // One exchange, of which a call has one or two.
  struct Phase {
    Cell cell;
    const float* in;
    float* out;
    bool everybody, brings, takes, from_root, has_parts, hands_over, gives_way;
    std::size_t unit, steps, piece;   // floats for one rank, in steps of so many
    std::size_t body, stride, slots;  // bytes: to the payload in a slot, between slots; how many
    std::byte* rings;

    std::size_t first(std::size_t step) const { return step * piece; }
    // Of a rank's block, or of what goes to all or is summed.
    std::size_t begin_of(int of) const { return cell.is_variable() ? cell.end_of(of) : as_size(of) * unit; }
    std::size_t count(std::size_t step, int of) const {
      const std::size_t block = cell.is_variable() ? cell.block_of(of) : unit;
      return std::min(piece, block - std::min(block, step * piece));
    }
    // Of the parts for the others in a slot.
    std::size_t part(int from, int to) const { return has_parts ? as_size(to < from ? to : to - 1) * piece : 0; }
  };

  static std::size_t as_size(int number) { return static_cast<std::size_t>(number); }
  static std::size_t bytes_of(int np) { return as_size(np) * (2 * kRing + 2 * kLine); }
  Number& done(int rank) {
    return *reinterpret_cast<Number*>(shared_ + as_size(np_) * 2 * kRing + as_size(rank) * 2 * kLine);
  }
  static Number& number_of(std::byte* slot) { return *reinterpret_cast<Number*>(slot); }
  static std::byte* slot(const Phase& phase, int rank, std::uint64_t number) {
    if (phase.hands_over) rank = static_cast<int>((as_size(rank) + number) & 1);
    return phase.rings + as_size(rank) * kRing + number % phase.slots * phase.stride;
  }

  Phase phase(Collective collective, std::size_t count, const float* in, float* out) const {
    Phase made{};
    made.cell = {.collective = collective, .count = count, .rank = rank_, .np = np_};
    made.in = in, made.out = out;
    made.rings = shared_ + phases_.size() * as_size(np_) * kRing;
    const bool to_root = collective == Collective::reduce || made.cell.to_root();
    made.from_root = collective == Collective::broadcast || made.cell.from_root();
    made.everybody = !made.from_root && !to_root;
    made.brings = made.everybody || made.from_root == (rank_ == 0);
    made.takes = made.everybody || to_root == (rank_ == 0);
    made.has_parts =
        made.cell.from_root() || collective == Collective::all_to_all || collective == Collective::reduce_scatter;
    made.unit = made.cell.is_variable()                 ? made.cell.block_of(np_ - 1)
                : made.has_parts || made.cell.gathers() ? made.cell.block()
                                                        : count;
    lay_out(made);
    return made;
  }
  void lay_out(Phase& made) const {
    const std::size_t parts = made.has_parts ? as_size(np_ - 1) : 1;
    const std::size_t most = (cores_.has_core() ? kPiece : kPieceOfMany) / 4 / parts;
    made.steps = made.unit == 0 ? 1 : (made.unit + most - 1) / most;
    made.piece = (made.unit + made.steps - 1) / made.steps;
    const std::size_t payload = made.piece * parts * 4;
    made.body = payload <= kLine - sizeof(Number) ? sizeof(Number) : kLine;
    made.stride = (made.body + payload + 2 * kLine - 1) / (2 * kLine) * (2 * kLine);
    const std::size_t rotated = kRings / as_size(np_) / made.stride;
    const bool of_two = np_ == 2 && cores_.has_core() && made.everybody && made.steps == 1;
    made.hands_over = of_two && payload <= kMostHandedOver;
    const std::size_t turns = payload <= kMostInPlace && made.steps == 1 ? kTurns : std::max(rotated, kLeastSlots);
    made.slots = made.hands_over ? 1 : turns;
    const bool keeps_own = made.cell.gathers() || made.cell.is(Collective::all_to_all);
    made.gives_way = made.everybody && made.steps == 1 && !(of_two && keeps_own && made.unit * 4 >= kPause);
  }

  void keep_own(const Phase& phase, std::size_t step) {
    const std::size_t own = phase.begin_of(rank_), first = phase.first(step), bytes = phase.count(step, rank_) * 4;
    const bool in_place = phase.in == phase.out + own;
    if (phase.cell.gathers() && phase.takes && !in_place) std::memcpy(phase.out + own + first, phase.in + first, bytes);
    if (phase.cell.is(Collective::all_to_all)) std::memcpy(phase.out + own + first, phase.in + own + first, bytes);
    if (phase.cell.from_root() && phase.brings) std::memcpy(phase.out + first, phase.in + first, bytes);
  }

  void bring(const Phase& phase, std::size_t step, std::uint64_t ahead = 0) {
    const std::uint64_t number = now_ + ahead;
    if (!phase.everybody) await_room(phase, number);
    std::byte* to = slot(phase, rank_, number);
    auto* body = reinterpret_cast<float*>(to + phase.body);
    const std::size_t first = phase.first(step);
    if (!phase.has_parts) std::memcpy(body, phase.in + first, phase.count(step, rank_) * 4);
    for (int other = 0; phase.has_parts && other < np_; ++other) {
      const float* from = phase.in + phase.begin_of(other) + first;
      if (other != rank_) std::memcpy(body + phase.part(rank_, other), from, phase.count(step, other) * 4);
    }
    number_of(to).store(number + 1, std::memory_order_release);
  }

  // A root waits for all others, they for the root.
  void await_room(const Phase& phase, std::uint64_t number) {
    if (number < taken_ + phase.slots) return;
    taken_ = number;
    for (int other = rank_ == 0 ? 1 : 0; other < (rank_ == 0 ? np_ : 1); ++other) {
      std::uint64_t its = 0;
      cores_.until([&] { return (its = done(other).load(std::memory_order_acquire)) + phase.slots > number; });
      taken_ = std::min(taken_, its);
    }
  }

  void take(const Phase& phase, std::size_t step) {
    const std::size_t first = phase.first(step);
    for (int turn = 1; turn < (phase.from_root ? 2 : np_); ++turn) {
      const int other = phase.from_root ? 0 : (rank_ + turn) % np_;
      std::byte* from = slot(phase, other, now_);
      cores_.until(
          [&] { return number_of(from).load(std::memory_order_acquire) == now_ + 1; },
          [&](int beside) { return number_of(slot(phase, beside, now_)).load(std::memory_order_relaxed) > now_; });
      const float* body = reinterpret_cast<const float*>(from + phase.body) + phase.part(other, rank_);
      if (phase.cell.reduces()) {
        const float* own = phase.in + (phase.has_parts ? as_size(rank_) * phase.unit : 0);
        add(phase.out + first, turn == 1 ? own + first : phase.out + first, body, phase.count(step, rank_));
      } else {
        const std::size_t count = phase.count(step, phase.from_root ? rank_ : other);
        std::memcpy(phase.out + (phase.from_root ? 0 : phase.begin_of(other)) + first, body, count * 4);
      }
    }
  }

  std::byte* shared_;  // rings of all ranks for each phase, and what they have done
  int rank_, np_;
  const Cores& cores_;
  float* out_ = nullptr;
  std::vector<Phase> phases_;
  std::uint64_t now_ = 0, taken_ = 0;  // steps of all calls; those whose slots are free
};

}  // namespace rondo::peers
