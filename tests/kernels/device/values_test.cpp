// SPDX-License-Identifier: Apache-2.0
// Element arithmetic of the kernels against the host's reductions: every dtype and operator, awkward values, the same
// bits. The functions need no lane, so they are called as they are.
#include "kernels/device/values.cuh"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/reduce.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

namespace device = kernels::device;
using device::u64x2;

constexpr std::size_t kWords = 512;

bool is_nan(DataType dtype, const std::byte* at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, std::min<std::size_t>(size_of(dtype), 4));
  switch (dtype) {
    case DataType::f16:
      return std::isnan(kernels::Half::widen(bits));
    case DataType::bf16:
      return std::isnan(kernels::Bfloat::widen(bits));
    case DataType::f8e4m3:
      return std::isnan(kernels::E4m3::widen(bits));
    case DataType::f8e5m2:
      return std::isnan(kernels::E5m2::widen(bits));
    case DataType::f32: {
      float value = 0;
      std::memcpy(&value, at, 4);
      return std::isnan(value);
    }
    case DataType::f64: {
      double value = 0;
      std::memcpy(&value, at, 8);
      return std::isnan(value);
    }
    default:
      return false;
  }
}

// Elements whose bits differ; the payloads of NaNs may.
int differences(DataType dtype, const std::vector<u64x2>& got, const std::vector<u64x2>& expected) {
  const std::size_t bytes = size_of(dtype);
  const auto* a = reinterpret_cast<const std::byte*>(got.data());
  const auto* b = reinterpret_cast<const std::byte*>(expected.data());
  int count = 0;
  for (std::size_t i = 0; i < got.size() * sizeof(u64x2); i += bytes) {
    const bool same = std::memcmp(a + i, b + i, bytes) == 0 || (is_nan(dtype, a + i) && is_nan(dtype, b + i));
    count += same ? 0 : 1;
  }
  return count;
}

// Any bits; many from a few patterns: zeros of both signs, ones, largest, infinite, subnormal, NaN.
std::vector<u64x2> awkward(DataType dtype, std::mt19937_64& random) {
  const auto bits = static_cast<unsigned>(8 * size_of(dtype));
  const std::uint64_t top = std::uint64_t{1} << (bits - 1), all = top | (top - 1);
  const std::uint64_t special[] = {0,
                                   top,
                                   1,
                                   top | 1,
                                   all,
                                   top - 1,
                                   top / 2,
                                   top / 2 - 1,
                                   top >> 2,
                                   3,
                                   all << 1,
                                   top - 2,
                                   0x7c00,
                                   0xfc00,
                                   0x7f80,
                                   0xff80,
                                   0x7f800000,
                                   0xff800000,
                                   0x7e,
                                   0xfe,
                                   0x3c003c00,
                                   0x3ff0000000000000,
                                   0x7ff0000000000000,
                                   0x7f};
  std::vector<u64x2> words(kWords);
  auto* at = reinterpret_cast<std::byte*>(words.data());
  for (std::size_t i = 0; i < kWords * sizeof(u64x2); i += size_of(dtype)) {
    const std::uint64_t choice = random();
    std::uint64_t value = choice % 4 == 0 ? special[random() % std::size(special)] : random();
    if (choice % 4 == 1) value = random() % 9 - (choice & 16 ? 4 : 0);
    std::memcpy(at + i, &value, size_of(dtype));
  }
  return words;
}

std::size_t elements(DataType dtype) { return kWords * sizeof(u64x2) / size_of(dtype); }

template <class F>
void for_each_dtype_and_op(F&& f) {
  for (int dtype = 0; dtype < kDataTypeCount; ++dtype) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      const auto type = static_cast<DataType>(dtype);
      const auto kind = static_cast<ReduceOp::Kind>(op);
      if (is_supported(type, kind)) f(type, kind);
    }
  }
}

// Word by word of width W, through `touch`.
template <class W, class F>
std::vector<u64x2> by_words(const std::vector<u64x2>& in, F&& touch) {
  std::vector<u64x2> out = in;
  auto* at = reinterpret_cast<std::byte*>(out.data());
  for (std::size_t i = 0; i < out.size() * sizeof(u64x2); i += sizeof(W)) {
    W word;
    std::memcpy(&word, at + i, sizeof(W));
    word = touch(word, i);
    std::memcpy(at + i, &word, sizeof(W));
  }
  return out;
}
template <class W>
W word_at(const std::vector<u64x2>& words, std::size_t byte) {
  W word;
  std::memcpy(&word, reinterpret_cast<const std::byte*>(words.data()) + byte, sizeof(W));
  return word;
}

TEST_CASE("kernels combine with the bits of the host") {
  std::mt19937_64 random(rotating_seed());
  for_each_dtype_and_op([&](DataType dtype, ReduceOp::Kind op) {
    INFO(name_of(dtype) << ' ' << name_of(op));
    const auto a = awkward(dtype, random), b = awkward(dtype, random);
    auto expected = a;
    kernels::fold_pair(kernels::find_fold(dtype, op), expected.data(), a.data(), b.data(), elements(dtype));
    const auto check = [&]<class W>(W) {
      if (sizeof(W) < size_of(dtype)) return;
      const auto got = by_words<W>(a, [&](W word, std::size_t byte) {
        W left[1] = {word}, right[1] = {word_at<W>(b, byte)};
        device::combine(dtype, op, left, right);
        return left[0];
      });
      CHECK(differences(dtype, got, expected) == 0);
    };
    check(u64x2{});
    check(std::uint64_t{});
    check(std::uint32_t{});
    check(std::uint16_t{});
    check(std::uint8_t{});
  });
}

TEST_CASE("kernels scale with the bits of the host") {
  std::mt19937_64 random(rotating_seed());
  for (int type = 0; type < kDataTypeCount; ++type) {
    const auto dtype = static_cast<DataType>(type);
    const auto in = awkward(dtype, random);
    auto expected = in;
    for (const double factor : {1.0, 3.0, -2.0, 0.5, 1e-3, -1.7, 1e30, 0x1p63, std::nan("")}) {
      INFO(name_of(dtype) << " times " << factor);
      kernels::find_multiply(dtype)(expected.data(), in.data(), elements(dtype), factor);
      CHECK(differences(
                dtype,
                by_words<u64x2>(in, [&](u64x2 word, std::size_t) { return device::multiply(dtype, word, factor); }),
                expected) == 0);
    }
    for (const double divisor : {1.0, 2.0, 3.0, 7.0, 64.0}) {
      INFO(name_of(dtype) << " by " << divisor);
      kernels::find_divide(dtype)(expected.data(), in.data(), elements(dtype), divisor);
      CHECK(differences(
                dtype,
                by_words<u64x2>(in, [&](u64x2 word, std::size_t) { return device::divide(dtype, word, divisor); }),
                expected) == 0);
    }
  }
}

TEST_CASE("kernels fold with the bits of the host") {
  std::mt19937_64 random(rotating_seed());
  for_each_dtype_and_op([&](DataType dtype, ReduceOp::Kind op) {
    for (const int inputs : {1, 2, 3, 8}) {
      INFO(name_of(dtype) << ' ' << name_of(op) << " of " << inputs);
      std::vector<std::vector<u64x2>> in;
      std::vector<const void*> pointers;
      for (int i = 0; i < inputs; ++i) in.push_back(awkward(dtype, random));
      for (const auto& values : in) pointers.push_back(values.data());
      std::vector<u64x2> expected(kWords);
      kernels::fold_into(kernels::find_fold(dtype, op), expected.data(), pointers.data(), inputs, elements(dtype),
                         inputs);
      std::vector<u64x2> got(kWords);
      const bool averages = op == ReduceOp::average;
      device::with_element(dtype, op, averages, [&](auto element, auto by) {
        for (std::size_t i = 0; i < kWords; ++i) {
          const auto word_of = [&](int rank) { return in[static_cast<std::size_t>(rank)][i]; };
          if (averages && inputs != 1 && device::widens(dtype)) {
            got[i] = device::average_words<u64x2>(dtype, inputs, word_of);
            continue;
          }
          device::Accumulator<decltype(element), decltype(by), u64x2> sum;
          sum.start(word_of(0));
          for (int rank = 1; rank < inputs; ++rank) sum.add(word_of(rank));
          if (averages) sum.divide(inputs);
          got[i] = sum.bits();
        }
      });
      CHECK(differences(dtype, got, expected) == 0);
    }
  });
}

}  // namespace
}  // namespace rondo::test
