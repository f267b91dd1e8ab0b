// SPDX-License-Identifier: Apache-2.0
// The bound in shared memory: of five ways the one that is faster for a call.
#pragma once
#include "bound_claimed.hpp"
#include "bound_copied.hpp"
#include "bound_direct.hpp"
#include "bound_memory.hpp"
#include "bound_staged.hpp"

namespace rondo::peers {

class BoundShared : public Library {
 public:
  struct Memory {
    std::byte *slots, *places, *rings, *buffers, *addresses;
  };
  // Before the ranks are forked.
  static Memory create(int np) {
    return {BoundMemory::create(np), BoundClaimed::create(np), BoundStaged::create(np), BoundDirect::create(np),
            BoundCopied::create(np)};
  }

  // windows: all buffers are memory that all ranks reach.
  BoundShared(Memory memory, int rank, int np, bool has_core, bool windows, bool ahead)
      : cores_(rank, np, has_core, ahead),
        short_(memory.slots, rank, np, cores_),
        claimed_(memory.places, rank, np, cores_),
        staged_(memory.rings, rank, np, cores_),
        direct_(memory.buffers, rank, np, cores_),
        copied_(memory.addresses, rank, np, cores_),
        windows_(windows) {}

  float* allocate(std::size_t count) override { return windows_ ? direct_.allocate(count) : Library::allocate(count); }
  void release() override {
    Library::release();
    direct_.release();
  }

  void prepare(const Cell& cell, float* in, float* out) override {
    chosen_ = &way_of(cell);
    chosen_->prepare(cell, in, out);
  }
  void run() override { chosen_->run(); }
  const float* result() override { return chosen_->result(); }

 private:
  static constexpr std::size_t kShort = 2 << 10, kShortExchange = BoundMemory::kMostHandedOver;  // bytes
  static constexpr std::size_t kShortOfMany = 64 << 10;  // with more ranks than cores
  // Sums that are claimed; the second one with two ranks on each core.
  static constexpr std::size_t kLeastClaimed = 2 << 10, kMostClaimedOfTwo = 4 << 10;
  static constexpr std::size_t kLeastDirect = 4 << 10, kLeastDirectOfRoot = 64 << 10;  // the second one of many

  Library& way_of(const Cell& cell) {
    const std::size_t bytes = cell.count * 4;
    if (cell.is_variable()) return short_;
    const std::size_t direct = cell.rooted() && !cores_.has_core() ? kLeastDirectOfRoot : kLeastDirect;
    if (windows_ && bytes >= direct) return direct_;
    if (BoundCopied::is_faster(cell, cores_.has_core())) return copied_;
    return cores_.has_core() ? way_with_cores(cell, bytes) : way_of_many(cell, bytes);
  }
  Library& way_with_cores(const Cell& cell, std::size_t bytes) {
    if (bytes <= (cell.rooted() ? kShort : kShortExchange)) return short_;
    return staged_;
  }
  Library& way_of_many(const Cell& cell, std::size_t bytes) {
    const std::size_t claimed = cell.np <= 2 * cores_.count() ? kMostClaimedOfTwo : BoundClaimed::kMost;
    if (cell.is(Collective::all_reduce) && bytes >= kLeastClaimed && bytes <= claimed) return claimed_;
    if (bytes <= kShortOfMany) return short_;
    return staged_;
  }

  Cores cores_;
  BoundMemory short_;
  BoundClaimed claimed_;
  BoundStaged staged_;
  BoundDirect direct_;
  BoundCopied copied_;
  bool windows_;
  Library* chosen_ = nullptr;
};

}  // namespace rondo::peers
