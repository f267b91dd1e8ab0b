// SPDX-License-Identifier: Apache-2.0
#include "trainer/normal.hpp"

#include <cmath>
#include <numbers>
#include <type_traits>

namespace rondo::trainer {
namespace {

constexpr std::size_t kTogether = 16;  // numbers that are made from one another

// Box and Muller's, from uniform numbers of [0, 1).
template <class T>
void make_normal(T* block) {
  for (std::size_t i = 0; i < kTogether / 2; ++i) {
    const T radius = std::sqrt(T(-2) * std::log(T(1) - block[i]));
    const T angle = T(2) * std::numbers::pi_v<T> * block[i + kTogether / 2];
    block[i] = radius * std::cos(angle);
    block[i + kTogether / 2] = radius * std::sin(angle);
  }
}

}  // namespace

double NormalNumbers::uniform_double() {
  const std::uint64_t high = engine_();
  return std::ldexp(static_cast<double>((high << 32 | engine_()) & ((std::uint64_t{1} << 53) - 1)), -53);
}
template <class T>
T NormalNumbers::uniform() {
  if constexpr (std::is_same_v<T, double>) return uniform_double();
  return std::ldexp(static_cast<T>(engine_() & ((1U << 24) - 1)), -24);
}

double NormalNumbers::one() {
  if (left_over_) {
    const double number = *left_over_;
    left_over_.reset();
    return number;
  }
  const double angle = 2 * std::numbers::pi * uniform_double();
  const double radius = std::sqrt(-2 * std::log1p(-uniform_double()));
  left_over_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

template <class T>
void NormalNumbers::fill_all(std::span<T> numbers) {
  if (numbers.size() < kTogether) {
    for (T& number : numbers) number = static_cast<T>(one());
    return;
  }
  for (T& number : numbers) number = uniform<T>();
  for (std::size_t at = 0; at + kTogether <= numbers.size(); at += kTogether) make_normal(numbers.data() + at);
  if (numbers.size() % kTogether == 0) return;
  const auto last = numbers.last(kTogether);
  for (T& number : last) number = uniform<T>();
  make_normal(last.data());
}

void NormalNumbers::fill(std::span<float> numbers) { fill_all(numbers); }
void NormalNumbers::fill(std::span<double> numbers) { fill_all(numbers); }

std::uint32_t NumpySeeds::next() {
  constexpr std::uint32_t kLargest = 999'999'999;
  while (true) {
    const auto drawn = static_cast<std::uint32_t>(engine_() & ((1U << 30) - 1));
    if (drawn <= kLargest) return drawn;
  }
}

}  // namespace rondo::trainer
