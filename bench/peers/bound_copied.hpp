// SPDX-License-Identifier: Apache-2.0
// The bound in ordinary memory that the kernel copies between processes: all come, say where their buffers lie, and
// each block is copied once, by whoever gets it; what goes to a root, by whoever has it. Two ranks with a core each
// share the work of a call with a root, and of sums, which they add where they have fetched them.
#pragma once
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bound.hpp"
#include "bound_stores.hpp"

namespace rondo::peers {

class BoundCopied : public Library {
 public:
  // Before the ranks are forked, for which it also finds out whether pages are cheap.
  static std::byte* create(int np) {
    cheap() = us_per_page() < kMostPerPageUs;
    return shared_memory(static_cast<std::size_t>(np) * kRank);
  }
  // Whether that is faster than two copies here (2 to 8 ranks on two cores of a Xeon, Emerald Rapids). Where pages cost
  // more than kMostPerPageUs, on EPYCs, it nowhere is.
  static bool is_faster(const Cell& cell, bool has_cores) {
    constexpr std::size_t kBlock = 8 << 10, kExchange = 128 << 10, kOfMany = 256 << 10, kMostSummed = 2 << 20;
    constexpr std::size_t kTooLong = 32 << 20, kTooLongGathered = 2 << 20, kTooLongExchanged = 8 << 20;
    constexpr std::size_t kMostExchanged = 20 << 20;
    const std::size_t bytes = cell.count * sizeof(float);
    const bool to_all = cell.is(Collective::broadcast) || cell.is(Collective::all_gather);
    const std::size_t summed = cell.is(Collective::all_reduce) ? kMostSummed / 2 : kMostSummed;
    if (cell.reduces()) return cheap() && has_cores && cell.np == 2 && bytes >= kExchange && bytes <= summed;
    if (to_all && !has_cores) return false;
    if (has_cores && cell.rooted() ? block_bytes(cell) < kBlock : bytes < (has_cores ? kExchange : kOfMany))
      return false;
    if (cell.is(Collective::all_gather) && bytes >= kTooLongGathered) return false;
    const std::size_t exchanged = has_cores ? kTooLongExchanged : kMostExchanged / static_cast<std::size_t>(cell.np);
    if (cell.is(Collective::all_to_all) && bytes >= exchanged) return false;
    if (!cell.is(Collective::scatter) && bytes >= kTooLong) return false;
    return cheap();
  }

  BoundCopied(std::byte* shared, int rank, int np, const Cores& cores)
      : shared_(shared), rank_(rank), np_(np), cores_(cores) {}

  void prepare(const Cell& cell, float* in, float* out) override {
    cell_ = cell, out_ = out;
    in_ = cell.is(Collective::broadcast) ? out : in;
    bytes_ = block_bytes(cell);
    kept_ = kept(cell, false);
    turns_ = outgrows_caches(cell, cores_.has_core());
    Place& mine = place(rank_);
    mine.pid = ::getpid(), mine.in = in_, mine.out = out_;
  }

  void run() override {
    ++call_;
    meet(kArrived);
    if (cell_.reduces()) {
      sum_with(1 - rank_);
    } else {
      for (int turn = 0; turn < np_; ++turn) copy_with((rank_ + (backwards() ? np_ - 1 - turn : turn)) % np_);
    }
    if (kept_ == Stores::streamed) fence();
    meet(kDone);
  }
  const float* result() override { return out_; }

 private:
  static constexpr double kMostPerPageUs = 0.2;
  static constexpr std::size_t kMostAlone = 16 << 10;  // of a block: two who copy at once take longer
  static constexpr std::size_t kStrip = 256 << 10, kBackwards = 512 << 10;  // bytes: of sums; of copies at once
  static std::size_t block_bytes(const Cell& cell) {
    return (cell.has_blocks() ? cell.block() : cell.count) * sizeof(float);
  }
  static bool& cheap() {
    static bool found = false;
    return found;
  }
  // What the kernel takes more than a copy within the process: the least of a few tries.
  static double us_per_page() {
    constexpr std::size_t kPages = 64;
    constexpr int kTries = 20;
    std::vector<std::byte> from(kPages * kPage, std::byte{1}), to(from);
    const iovec local{to.data(), to.size()}, remote{from.data(), from.size()};
    const auto least_us = [](auto copy) {
      double least = 1e9;
      for (int i = 0; i < kTries; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        if (!copy()) return 1e9;
        least = std::min(least,
                         std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
      }
      return least;
    };
    const double kernel_us = least_us(
        [&] { return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(to.size()); });
    return (kernel_us - least_us([&] { return std::memcpy(to.data(), from.data(), to.size()) != nullptr; })) / kPages;
  }

  enum Which : std::size_t { kArrived, kDone, kWords };
  using Word = std::atomic<std::uint64_t>;
  struct Place {
    pid_t pid;
    const float* in;
    float* out;
  };
  static constexpr std::size_t kLine = 128, kRank = (kWords + 1) * kLine, kPage = 4096;
  static constexpr std::size_t kNone = 0, kQuarter = 1, kHalf = 2, kMost = 3, kAll = 4;  // quarters

  bool backwards() const { return turns_ && call_ % 2 != 0; }
  Word& word(int rank, Which which) const {
    return *reinterpret_cast<Word*>(shared_ + static_cast<std::size_t>(rank) * kRank + which * kLine);
  }
  Place& place(int rank) const {
    return *reinterpret_cast<Place*>(shared_ + static_cast<std::size_t>(rank) * kRank + kWords * kLine);
  }

  // At the end, only who is still read or written waits.
  void meet(Which which) {
    word(rank_, which).store(call_, std::memory_order_release);
    if (which == kDone && cell_.rooted() && np_ > 2 && rank_ != 0) return;
    for (int turn = 1; turn < np_; ++turn) {
      const auto is_there = [&](int other) { return word(other, which).load(std::memory_order_acquire) >= call_; };
      cores_.until([&] { return is_there((rank_ + turn) % np_); }, is_there);
    }
  }

  // What this rank does of what goes between it and that one.
  void copy_with(int other) {
    const bool both = np_ == 2 && cores_.has_core() && bytes_ > kMostAlone;
    const std::size_t theirs = static_cast<std::size_t>(other) * bytes_,
                      mine = static_cast<std::size_t>(rank_) * bytes_;
    if (cell_.is(Collective::broadcast)) return move(0, other, {0, 0}, both ? kHalf : kAll);
    if (cell_.is(Collective::scatter)) return move(0, other, {theirs, 0}, both ? kMost : kAll);
    if (cell_.is(Collective::gather)) return move(other, 0, {0, theirs}, both ? kQuarter : kNone);
    move(other, rank_, {cell_.is(Collective::all_to_all) ? mine : 0, theirs}, kAll);
  }

  // Each fetches, adds and brings a part; of a reduce the root, which brings nothing, five eighths.
  void sum_with(int other) {
    const std::size_t of_first = cell_.is(Collective::reduce) ? cell_.count / 8 * 5 : cell_.count / 2;
    const std::size_t mine = rank_ == 0 ? 0 : of_first, whole = rank_ == 0 ? of_first : cell_.count - of_first;
    sweep(whole, kStrip / sizeof(float), backwards(),
          [&](std::size_t at, std::size_t count) { sum_strip(other, mine + at, count, mine); });
  }
  void sum_strip(int other, std::size_t first, std::size_t count, std::size_t mine) {
    float* const sums = out_ + first - (cell_.is(Collective::reduce_scatter) ? mine : 0);
    const auto bytes_at = [](const float* at) { return reinterpret_cast<std::byte*>(const_cast<float*>(at)); };
    const std::size_t bytes = count * sizeof(float);
    call(::process_vm_readv, other, bytes_at(sums), bytes_at(place(other).in + first), bytes);
    add(sums, in_ + first, sums, count);
    if (cell_.is(Collective::all_reduce) || (cell_.is(Collective::reduce) && rank_ != 0))
      call(::process_vm_writev, other, bytes_at(sums), bytes_at(place(other).out + first), bytes);
  }

  struct Offsets {
    std::size_t in, out;
  };
  // Quarters are fetched by `to`, the rest is brought by `from`.
  void move(int from, int to, Offsets at, std::size_t quarters) {
    const auto* source = reinterpret_cast<const std::byte*>(place(from).in) + at.in;
    auto* target = reinterpret_cast<std::byte*>(place(to).out) + at.out;
    if (from == to) {
      if (from == rank_ && source != target)
        sweep(bytes_ / sizeof(float), kBackwards / sizeof(float), backwards(),
              [&](std::size_t first, std::size_t count) {
                copy(reinterpret_cast<float*>(target) + first, reinterpret_cast<const float*>(source) + first, count,
                     kept_);
              });
      return;
    }
    const std::size_t fetched = quarters == kAll ? bytes_ : bytes_ / kAll * quarters / kPage * kPage;
    if (to == rank_) call(::process_vm_readv, from, target, const_cast<std::byte*>(source), fetched);
    if (from == rank_)
      call(::process_vm_writev, to, const_cast<std::byte*>(source) + fetched, target + fetched, bytes_ - fetched);
  }

  template <class Copy>
  void call(Copy copies, int peer, std::byte* here, std::byte* there, std::size_t bytes) const {
    if (bytes == 0) return;
    sweep(bytes, backwards() ? kBackwards : bytes, backwards(), [&](std::size_t first, std::size_t count) {
      const iovec local{here + first, count}, remote{there + first, count};
      if (copies(place(peer).pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(count))
        std::perror("process_vm"), std::exit(1);
    });
  }

  std::byte* shared_;  // for each rank its words, then its place
  int rank_, np_;
  const Cores& cores_;
  Cell cell_;
  const float* in_ = nullptr;
  float* out_ = nullptr;
  std::size_t bytes_ = 0;
  Stores kept_ = Stores::cached;
  bool turns_ = false;  // goes forwards and backwards
  std::uint64_t call_ = 0;
};

}  // namespace rondo::peers
