// SPDX-License-Identifier: Apache-2.0
// Marks that ride behind the gradients of the last bucket and are averaged with them: who used which parameter, and
// which rank is in which step, whether one left its static graph. A mark is one or zero, so an average above zero says
// that somebody set it, whatever the format and the order of sums. Pure arithmetic.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

class RONDO_API RollCall {
 public:
  RollCall(std::size_t parameters, int world_size, DataType dtype);

  std::size_t count() const { return parameters_ + kMarksOfRank * world_size_ + 1; }  // marks
  std::size_t bytes() const { return count() * size_of(dtype_); }

  // Steps are told apart modulo this.
  static constexpr std::size_t kSteps = 16;
  // step: of a rank that trains; absent: of one that has joined.
  static constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);
  void write(std::span<std::byte> to, std::span<const char> used, int rank, std::size_t step, bool strayed) const;

  struct Answer {
    std::vector<char> used;    // by parameter, on any rank
    std::vector<int> present;  // ranks that train
    bool same_step = true;     // all of these
    bool strayed = false;      // some rank
  };
  Answer read(std::span<const std::byte> from) const;  // the same on every rank

 private:
  static constexpr std::size_t kMarksOfRank = 5;  // that it is there, and its step's binary digits
  static_assert(kSteps == 1U << (kMarksOfRank - 1));
  std::size_t parameters_, world_size_;
  DataType dtype_;
};

}  // namespace rondo::trainer
