// SPDX-License-Identifier: Apache-2.0
// The bound of short sums by more ranks than cores, where what a call takes is how often a core goes from rank to rank.
// Every rank brings its whole vector; when all have, whoever has a core sums the next piece of it that nobody has
// claimed, in its own place, where the others find it. So a rank may find everything done when its turn comes.
// There are as many pieces as cores.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "bound.hpp"
#include "bound_stores.hpp"

namespace rondo::peers {

class BoundClaimed : public Library {
 public:
  static constexpr std::size_t kMost = 256 << 10;  // bytes of a vector

  // Before the ranks are forked.
  static std::byte* create(int np) { return shared_memory(bytes_of(np)); }

  BoundClaimed(std::byte* shared, int rank, int np, const Cores& cores)
      : shared_(shared), rank_(rank), np_(np), cores_(cores), sources_(static_cast<std::size_t>(np)) {
    ::madvise(shared, bytes_of(np), MADV_POPULATE_WRITE);
  }

  void prepare(const Cell& cell, float* in, float* out) override { count_ = cell.count, in_ = in, out_ = out; }

  void run() override {
    ++meeting_;
    copy(place(rank_), in_, count_, Stores::cached);
    word(rank_, kArrived).store(meeting_, std::memory_order_release);
    for (int turn = 1; turn < np_; ++turn) {
      const auto has_come = [&](int other) {
        return word(other, kArrived).load(std::memory_order_acquire) >= meeting_;
      };
      cores_.until([&] { return has_come((rank_ + turn) % np_); }, has_come);
    }
    const int pieces = cores_.count();
    for (int turn = 0; turn < pieces; ++turn) sum_if_free((rank_ + turn) % pieces);
    for (int turn = 0; turn < pieces; ++turn) take((rank_ + turn) % pieces);
  }
  const float* result() override { return out_; }

 private:
  using Word = std::atomic<std::uint64_t>;
  enum Which : std::size_t { kArrived, kClaimed, kWords };  // of a rank; of a piece: by whom, and whether it is summed
  // Everybody has come to the next call before anybody writes for the one after it: two slots do. With four, lines that
  // another core has just read are written more rarely, as long as those of all ranks stay in the second caches.
  static constexpr std::size_t kLine = 128, kSlots = 4, kFewSlots = 2, kMostOfFour = 64 << 10;
  static constexpr std::size_t kApart = 2048 + kLine, kGrain = 16;

  static std::size_t as_size(int number) { return static_cast<std::size_t>(number); }
  static std::size_t bytes_of(int np) { return as_size(np) * (kSlots * (kMost + kApart) + kWords * kLine); }
  float* place(int rank) const {
    const std::size_t slot = meeting_ % (count_ * 4 <= kMostOfFour ? kSlots : kFewSlots);
    return reinterpret_cast<float*>(shared_ + (as_size(rank) * kSlots + slot) * (kMost + kApart));
  }
  Word& word(int index, Which which) const {
    std::byte* words = shared_ + as_size(np_) * kSlots * (kMost + kApart);
    return *reinterpret_cast<Word*>(words + (as_size(index) * kWords + which) * kLine);
  }
  std::uint64_t claim_of(int rank, bool is_summed) const { return meeting_ << 32 | as_size(rank) << 1 | is_summed; }
  static int claimer(std::uint64_t claim) { return static_cast<int>((claim & 0xffffffff) >> 1); }

  std::size_t first(int piece) const {
    return std::min(as_size(piece) * ((count_ / as_size(cores_.count()) + kGrain) / kGrain * kGrain), count_);
  }
  void sum_if_free(int piece) {
    Word& claimed = word(piece, kClaimed);
    std::uint64_t seen = claimed.load(std::memory_order_relaxed);
    if (seen >> 32 == meeting_ || !claimed.compare_exchange_strong(seen, claim_of(rank_, false))) return;
    const std::size_t from = first(piece), count = first(piece + 1) - from;
    for (int rank = 0; rank < np_; ++rank) sources_[as_size(rank)] = place(rank) + from;
    sum(out_ + from, place(rank_) + from, sources_.data(), np_, count, Stores::cached);
    claimed.store(claim_of(rank_, true), std::memory_order_release);
  }
  void take(int piece) {
    std::uint64_t seen = 0;
    const auto is_summed = [&] { return ((seen = word(piece, kClaimed).load(std::memory_order_acquire)) & 1) != 0; };
    cores_.until(is_summed, [&](int beside) { return beside != claimer(seen); });
    if (claimer(seen) == rank_) return;
    const std::size_t from = first(piece);
    copy(out_ + from, place(claimer(seen)) + from, first(piece + 1) - from, Stores::cached);
  }

  std::byte* shared_;  // places of all ranks, then words
  int rank_, np_;
  const Cores& cores_;
  std::vector<const float*> sources_;  // of a sum
  std::size_t count_ = 0;
  const float* in_ = nullptr;
  float* out_ = nullptr;
  std::uint64_t meeting_ = 0;
};

}  // namespace rondo::peers
