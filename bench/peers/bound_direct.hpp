// SPDX-License-Identifier: Apache-2.0
// The bound where all buffers are memory that all ranks can reach: when all have come, results are written where they
// belong, from where the inputs lie. The work is claimed item by item: with a core each a rank finds its own free;
// with more ranks than cores, whoever has a core does what is left, so that a rank may find everything done when its
// turn comes.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "bound.hpp"
#include "bound_stores.hpp"

namespace rondo::peers {

class BoundDirect : public Library {
 public:
  static constexpr std::size_t kMost = 160 << 20;  // bytes of a rank's buffers

  // Before the ranks are forked.
  static std::byte* create(int np) {
    const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = ::mmap(nullptr, as_size(np) * kRank, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) std::perror("mmap"), std::exit(2);
    return static_cast<std::byte*>(memory);
  }

  BoundDirect(std::byte* shared, int rank, int np, const Cores& cores)
      : shared_(shared), rank_(rank), np_(np), cores_(cores), sources_(as_size(np)), results_(as_size(np)) {}

  float* allocate(std::size_t count) override {
    std::byte* here = shared_ + as_size(rank_) * kRank + used_;
    used_ += (count * 4 + 2 * kPage) / kPage * kPage;
    if (used_ > kMost) std::fprintf(stderr, "buffers of more than %zu bytes\n", kMost), std::exit(2);
    return reinterpret_cast<float*>(here);
  }
  void release() override { used_ = 0; }

  void prepare(const Cell& cell, float* in, float* out) override {
    cell_ = cell, in_ = cell.is(Collective::broadcast) ? out : in, out_ = out;
    // Whoever has a core writes everybody's buffers: else pages would be met for the first time in timed calls.
    for (int rank = 0; rank < np_; ++rank) ::madvise(shared_ + as_size(rank) * kRank, used_, MADV_POPULATE_WRITE);
    kept_ = kept(cell, false);
    turns_ = outgrows_caches(cell, cores_.has_core());
    items_ = is_ranged() ? std::min(cores_.count(), np_) : np_;
  }

  void run() override {
    ++call_;
    word(rank_, kArrived).store(call_, std::memory_order_release);
    for (int turn = 1; turn < np_; ++turn) {
      const auto has_come = [&](int other) { return word(other, kArrived).load(std::memory_order_acquire) >= call_; };
      cores_.until([&] { return has_come((rank_ + turn) % np_); }, has_come);
    }
    for (int turn = 0; turn < items_; ++turn) do_if_free(item_of(turn));
    for (int turn = 0; turn < items_; ++turn) await(item_of(turn));
  }
  const float* result() override { return out_; }

 private:
  using Word = std::atomic<std::uint64_t>;
  enum Which : std::size_t { kArrived, kClaimed, kWords };  // of a rank; of an item: by whom, and whether it is done
  static constexpr std::size_t kLine = 128, kPage = 4096, kRank = kMost + kPage, kGrain = 16, kTurn = 1024,
                               kStep = 64 << 10;  // floats

  static std::size_t as_size(int number) { return static_cast<std::size_t>(number); }
  Word& word(int index, Which which) const {
    return *reinterpret_cast<Word*>(shared_ + as_size(index) * kRank + kMost + which * kLine);
  }
  std::uint64_t claim(bool is_done) const { return call_ << 32 | as_size(rank_) << 1 | is_done; }
  // An item is a part of the buffers, for everybody; else it is what a rank gets, or of a gather, what it brings.
  bool is_ranged() const { return !cell_.has_blocks(); }

  // Buffers lie alike on all ranks.
  std::ptrdiff_t apart(int rank) const { return static_cast<std::ptrdiff_t>(kRank / 4) * (rank - rank_); }
  const float* in_of(int rank) const { return in_ + apart(rank); }
  float* out_of(int rank) const { return out_ + apart(rank); }

  bool backwards() const { return turns_ && call_ % 2 != 0; }
  // Each core begins with those that it did in the last call, in the opposite order.
  int item_of(int turn) const {
    const int cores = std::min(cores_.count(), items_), core = rank_ % cores;
    const int first = core * items_ / cores, its = (core + 1) * items_ / cores - first;
    return (first + (backwards() && turn < its ? its - 1 - turn : turn)) % items_;
  }
  void do_if_free(int item) {
    Word& claimed = word(item, kClaimed);
    std::uint64_t seen = claimed.load(std::memory_order_relaxed);
    if (seen >> 32 == call_ || !claimed.compare_exchange_strong(seen, claim(false))) return;
    is_ranged() ? do_part(item) : do_block(item);
    if (kept_ == Stores::streamed) fence();
    claimed.store(claim(true), std::memory_order_release);
  }
  void await(int item) {
    std::uint64_t seen = 0;
    const auto is_done = [&] { return ((seen = word(item, kClaimed).load(std::memory_order_acquire)) & 1) != 0; };
    cores_.until(is_done, [&](int beside) { return as_size(beside) != (seen & 0xffffffff) >> 1; });
  }

  void do_part(int item) {
    const std::size_t each = (cell_.count / as_size(items_) + kGrain) / kGrain * kGrain;
    const std::size_t end = std::min((as_size(item) + 1) * each, cell_.count);
    const std::size_t begin = std::min(as_size(item) * each, end);
    sweep(end - begin, kept_ == Stores::cached ? kTurn : kStep, backwards(),
          [&](std::size_t first, std::size_t count) { do_range(begin + first, count); });
  }
  // Of a broadcast the sum of one. In the caches, copies of what was just written are faster than several outputs.
  void do_range(std::size_t first, std::size_t count) {
    const bool is_sum = cell_.reduces(), at_once = kept_ == Stores::streamed;
    const int begin = is_sum ? 0 : 1, end = cell_.is(Collective::reduce) ? 1 : np_;
    for (int rank = 0; rank < np_; ++rank) {
      sources_[as_size(rank)] = in_of(rank) + first;
      results_[as_size(rank)] = out_of(rank) + first;
    }
    float** to = results_.data() + begin;
    sum_to(to, at_once ? end - begin : 1, sources_.data(), is_sum ? np_ : 1, count, kept_);
    for (int rank = begin + 1; rank < end && !at_once; ++rank) copy(results_[as_size(rank)], *to, count, kept_);
  }

  void do_block(int item) {
    const std::size_t block = cell_.block(), theirs = as_size(item) * block;
    const auto move = [&](int from, std::size_t first, int to, std::size_t at) {
      sweep(block, kStep, backwards(), [&](std::size_t begin, std::size_t count) {
        copy(out_of(to) + at + begin, in_of(from) + first + begin, count, kept_);
      });
    };
    if (cell_.is(Collective::reduce_scatter)) {
      return sweep(block, kStep, backwards(), [&](std::size_t begin, std::size_t count) {
        for (int rank = 0; rank < np_; ++rank) sources_[as_size(rank)] = in_of(rank) + theirs + begin;
        sum(out_of(item) + begin, nullptr, sources_.data(), np_, count, kept_);
      });
    }
    if (cell_.is(Collective::gather)) return move(item, 0, 0, theirs);
    if (cell_.is(Collective::scatter)) return move(0, theirs, item, 0);
    for (int turn = 0; turn < np_; ++turn) {
      const int from = (item + (backwards() ? np_ - 1 - turn : turn)) % np_;
      move(from, cell_.is(Collective::all_to_all) ? theirs : 0, item, as_size(from) * block);
    }
  }

  std::byte* shared_;  // for each rank its buffers, then its words
  int rank_, np_, items_ = 1;
  const Cores& cores_;
  std::vector<const float*> sources_;  // of a sum
  std::vector<float*> results_;
  Cell cell_;
  const float* in_ = nullptr;
  float* out_ = nullptr;
  Stores kept_ = Stores::cached;
  bool turns_ = false;  // goes forwards and backwards
  std::size_t used_ = 0;
  std::uint64_t call_ = 0;
};

}  // namespace rondo::peers
