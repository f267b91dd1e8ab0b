// SPDX-License-Identifier: Apache-2.0
// [0, count) in pieces of at most `step` elements, the last one first where it goes backwards. Calls of a kind go
// through their buffers forwards and backwards by turns: what the caches still hold of one is what the next one begins
// with.
#pragma once
#include <cstddef>

#include "kernels/algorithms/ranges.hpp"

namespace rondo::comm {

class Sweep {
 public:
  Sweep(std::size_t count, std::size_t step, bool backwards)
      : count_(count), step_(step), pieces_((count + step - 1) / step), backwards_(backwards) {}
  class Iterator {
   public:
    Iterator(const Sweep& sweep, std::size_t nth) : sweep_(sweep), nth_(nth) {}
    kernels::Range operator*() const { return sweep_.piece(nth_); }
    Iterator& operator++() {
      ++nth_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return nth_ != other.nth_; }

   private:
    const Sweep& sweep_;
    std::size_t nth_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, pieces_}; }

 private:
  kernels::Range piece(std::size_t nth) const {
    const std::size_t first = (backwards_ ? pieces_ - 1 - nth : nth) * step_;
    return {first, count_ - first < step_ ? count_ - first : step_};
  }

  std::size_t count_, step_, pieces_;
  bool backwards_;
};

}  // namespace rondo::comm
