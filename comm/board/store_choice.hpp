// SPDX-License-Identifier: Apache-2.0
// How a rank writes what others read: through its caches, or past them. Which is faster depends on how far apart the
// cores are, which may change, so now and then a few chunks are written either way and timed. Only the writer sees its
// choice, and only in time: bits never depend on it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "comm/base/ticks.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

class StoreChoice {
 public:
  // For the next chunk of that length. Where timed() is true, took() is told how long it took.
  kernels::Stores next(std::size_t bytes);
  bool timed() const { return timed_; }
  void took(std::uint64_t ticks, std::size_t bytes);

  // write(stores) writes so many bytes.
  template <class Write>
  void write(std::size_t bytes, Write&& write) {
    const kernels::Stores stores = next(bytes);
    if (!timed_) return write(stores);
    const std::uint64_t begun = read_ticks();
    write(stores);
    took(read_ticks() - begun, bytes);
  }

 private:
  struct Class {                   // of chunks of about the same length
    std::uint32_t turn = 0;        // in a period, which begins with the trials
    std::array<double, 2> best{};  // ticks per byte, by kind, of this period's trials
    kernels::Stores chosen = kernels::Stores::plain;
  };
  static constexpr std::size_t kClasses = 8;
  static Class* class_of(std::array<Class, kClasses>& classes, std::size_t bytes);

  std::array<Class, kClasses> classes_{};
  Class* timed_class_ = nullptr;
  bool timed_ = false;
};

}  // namespace rondo::comm
