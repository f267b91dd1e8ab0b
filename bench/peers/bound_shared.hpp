// SPDX-License-Identifier: Apache-2.0
// The bound in shared memory: of two ways the one that is faster for a call.
#pragma once
#include "bound_memory.hpp"
#include "bound_staged.hpp"

namespace rondo::peers {

class BoundShared : public Library {
 public:
  struct Memory {
    std::byte *slots, *rings;
  };
  // Before the ranks are forked.
  static Memory create(int np) { return {BoundMemory::create(np), BoundStaged::create(np)}; }

  BoundShared(Memory memory, int rank, int np, bool has_core)
      : cores_(rank, np, has_core), short_(memory.slots, rank, np, cores_), staged_(memory.rings, rank, np, cores_) {}

  void prepare(const Cell& cell, float* in, float* out) override {
    const bool is_short = cell.count * 4 <= (cores_.has_core() ? kShort : kShortOfMany);
    chosen_ = is_short ? static_cast<Library*>(&short_) : &staged_;
    chosen_->prepare(cell, in, out);
  }
  void run() override { chosen_->run(); }
  const float* result() override { return chosen_->result(); }

 private:
  static constexpr std::size_t kShort = 16 << 10, kShortOfMany = 64 << 10;  // bytes; with more ranks than cores

  Cores cores_;
  BoundMemory short_;
  BoundStaged staged_;
  Library* chosen_ = nullptr;
};

}  // namespace rondo::peers
