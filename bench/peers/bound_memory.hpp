// SPDX-License-Identifier: Apache-2.0
// The bound in shared memory. Every rank has a ring of slots; a step of a call writes what the others need of this rank
// into the next slot, and its number behind it; who needs it polls the slot. A payload of a few bytes lies in the
// number's own line. Calls of more than kPiece bytes take several steps. Buffers are ordinary memory, so everything is
// copied into the ring and out of it.
// A slot is written again `slots_` steps later. Where everybody takes from everybody, that everybody has taken from it
// follows from the steps between; else each rank tells how many steps it has done, which is looked at once a ring.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "bound.hpp"

namespace rondo::peers {

class BoundMemory : public Library {
 public:
  static constexpr std::size_t kLine = 64, kRing = std::size_t{4} << 20;

  // Before the ranks are forked.
  static std::byte* create(int np) {
    void* memory =
        ::mmap(nullptr, bytes_of(np), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) std::perror("mmap"), std::exit(2);
    return static_cast<std::byte*>(memory);
  }

  BoundMemory(std::byte* shared, int rank, int np, bool has_core)
      : shared_(shared), rank_(rank), np_(np), cores_(rank, np, has_core) {
    ::madvise(shared, bytes_of(np), MADV_POPULATE_WRITE);
  }

  void prepare(const Cell& cell, float* in, float* out) override {
    cell_ = cell, in_ = cell.is(Collective::broadcast) ? out : in, out_ = out;
    const bool from_root = cell.is(Collective::broadcast) || cell.is(Collective::scatter);
    const bool to_root = cell.is(Collective::reduce) || cell.is(Collective::gather);
    everybody_ = !from_root && !to_root;
    brings_ = everybody_ || from_root == (rank_ == 0);
    takes_ = everybody_ || to_root == (rank_ == 0);
    sources_ = from_root ? 1 : np_;
    has_parts_ = cell.is(Collective::scatter) || cell.is(Collective::all_to_all) || cell.is(Collective::reduce_scatter);
    unit_ = has_parts_ || cell.gathers() ? cell.block() : cell.count;
    const auto parts = static_cast<std::size_t>(has_parts_ ? np_ - 1 : 1);
    const std::size_t most = (cores_.has_core() ? kPiece : kPieceOfMany) / 4 / parts;
    steps_ = unit_ == 0 ? 1 : (unit_ + most - 1) / most;
    piece_ = (unit_ + steps_ - 1) / steps_;
    const std::size_t payload = piece_ * parts * 4;
    body_ = payload <= kLine - sizeof(Number) ? sizeof(Number) : kLine;
    stride_ = (body_ + payload + 2 * kLine - 1) / (2 * kLine) * (2 * kLine);
    slots_ = payload <= kMostInPlace ? kLeastSlots : std::max(kRing / stride_, kLeastSlots);
    done(rank_).store(taken_ = now_, std::memory_order_release);  // the ranks meet before they call
  }

  void run() override {
    if (brings_) bring(0);
    for (std::size_t step = 0; step < steps_; ++step, ++now_) {
      if (brings_ && step + 1 < steps_) bring(step + 1, 1);
      keep_own(step * piece_, count_of(step));
      if (takes_) take(step);
      if (!everybody_) done(rank_).store(now_ + 1, std::memory_order_release);
    }
  }
  const float* result() override { return out_; }

 private:
  using Number = std::atomic<std::uint64_t>;
  static constexpr std::size_t kPiece = 32 << 10, kPieceOfMany = 512 << 10;  // bytes a step; with more ranks than cores
  static constexpr std::size_t kLeastSlots = 4;  // a rank is at most two steps ahead of what another has taken
  // Longer ones go round the ring: lines that another core still holds are slow to write.
  static constexpr std::size_t kMostInPlace = 4 << 10;

  static_assert(kLeastSlots * (kPieceOfMany + 2 * kLine) <= kRing && kPiece <= kPieceOfMany);

  static std::size_t bytes_of(int np) { return static_cast<std::size_t>(np) * (kRing + 2 * kLine); }
  Number& done(int rank) {
    return *reinterpret_cast<Number*>(shared_ + static_cast<std::size_t>(np_) * kRing +
                                      static_cast<std::size_t>(rank) * 2 * kLine);
  }
  std::byte* slot(int rank, std::uint64_t number) {
    return shared_ + static_cast<std::size_t>(rank) * kRing + number % slots_ * stride_;
  }
  static Number& number_of(std::byte* slot) { return *reinterpret_cast<Number*>(slot); }
  std::size_t count_of(std::size_t step) const { return std::min(piece_, unit_ - std::min(unit_, step * piece_)); }
  // Of a rank's parts for the others in a slot.
  std::size_t part_of(int from, int to) const {
    return has_parts_ ? static_cast<std::size_t>(to < from ? to : to - 1) * piece_ : 0;
  }

  void keep_own(std::size_t first, std::size_t count) {
    const std::size_t own = static_cast<std::size_t>(rank_) * unit_ + first;
    if (cell_.gathers() && takes_) std::memcpy(out_ + own, in_ + first, count * 4);
    if (cell_.is(Collective::all_to_all)) std::memcpy(out_ + own, in_ + own, count * 4);
    if (cell_.is(Collective::scatter) && brings_) std::memcpy(out_ + first, in_ + first, count * 4);
  }

  void bring(std::size_t step, std::uint64_t ahead = 0) {
    const std::uint64_t number = now_ + ahead;
    if (!everybody_) await_room(number);
    std::byte* to = slot(rank_, number);
    auto* body = reinterpret_cast<float*>(to + body_);
    const std::size_t first = step * piece_, count = count_of(step);
    if (!has_parts_) {
      std::memcpy(body, in_ + first, count * 4);
    } else {
      for (int other = 0; other < np_; ++other) {
        if (other != rank_)
          std::memcpy(body + part_of(rank_, other), in_ + static_cast<std::size_t>(other) * unit_ + first, count * 4);
      }
    }
    number_of(to).store(number + 1, std::memory_order_release);
  }

  void await_room(std::uint64_t number) {
    if (number < taken_ + slots_) return;
    taken_ = number;
    for (int other = rank_ == 0 ? 1 : 0; other < (rank_ == 0 ? np_ : 1); ++other) {
      std::uint64_t its = 0;
      cores_.until([&] { return (its = done(other).load(std::memory_order_acquire)) + slots_ > number; });
      taken_ = std::min(taken_, its);
    }
  }

  void take(std::size_t step) {
    const std::size_t first = step * piece_, count = count_of(step);
    for (int turn = 1; turn < np_; ++turn) {
      const int other = sources_ == 1 ? 0 : (rank_ + turn) % np_;
      std::byte* from = slot(other, now_);
      cores_.until([&] { return number_of(from).load(std::memory_order_acquire) == now_ + 1; },
                   [this](int beside) { return number_of(slot(beside, now_)).load(std::memory_order_relaxed) > now_; });
      const float* body = reinterpret_cast<const float*>(from + body_) + part_of(other, rank_);
      if (cell_.reduces()) {
        const float* own = has_parts_ ? in_ + static_cast<std::size_t>(rank_) * unit_ : in_;
        add(out_ + first, turn == 1 ? own + first : out_ + first, body, count);
      } else {
        std::memcpy(out_ + (sources_ == 1 ? 0 : static_cast<std::size_t>(other) * unit_) + first, body, count * 4);
      }
      if (sources_ == 1) break;
    }
  }

  std::byte* shared_;
  int rank_, np_;
  Cores cores_;
  Cell cell_;
  float *in_ = nullptr, *out_ = nullptr;
  bool everybody_ = false, brings_ = false, takes_ = false, has_parts_ = false;
  int sources_ = 0;                                // ranks that are taken from
  std::size_t unit_ = 0, piece_ = 0, steps_ = 0;   // floats for one rank: in a call, in a step; steps
  std::size_t body_ = 0, stride_ = 0, slots_ = 0;  // bytes: of the payload in a slot, between slots
  std::uint64_t now_ = 0, taken_ = 0;              // steps of all calls; those whose slots are free
};

}  // namespace rondo::peers
