// SPDX-License-Identifier: Apache-2.0
// Every dtype and operator, every instruction set the processor has, against one element at a time in plain C++.
#include "kernels/reduce.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/reduce_table.hpp"
#include "tests/kernels/tables.hpp"
#include "tests/support/catch.hpp"

using rondo::DataType;
using rondo::ReduceOp;
using rondo::kernels::fold_into;
using rondo::kernels::fold_pair;
using rondo::test::tables;

namespace {

template <class T>
constexpr bool kFloatingValue = !std::is_integral_v<T>;
template <class T>
using Value = std::conditional_t<std::is_integral_v<T> || std::is_same_v<T, double>, T, float>;

template <class V>
V reference(ReduceOp::Kind op, V a, V b) {
  if constexpr (std::is_integral_v<V>) {
    using U = std::conditional_t<sizeof(V) < 4, unsigned, std::make_unsigned_t<V>>;
    switch (op) {
      case ReduceOp::product:
        return static_cast<V>(static_cast<U>(a) * static_cast<U>(b));
      case ReduceOp::min:
        return a < b ? a : b;
      case ReduceOp::max:
        return a < b ? b : a;
      case ReduceOp::bit_and:
        return static_cast<V>(a & b);
      case ReduceOp::bit_or:
        return static_cast<V>(a | b);
      case ReduceOp::bit_xor:
        return static_cast<V>(a ^ b);
      default:
        return static_cast<V>(static_cast<U>(a) + static_cast<U>(b));
    }
  } else {
    if (op == ReduceOp::product) return a * b;
    if (op != ReduceOp::min && op != ReduceOp::max) return a + b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<V>::quiet_NaN();
    if (a == b) return std::signbit(a) == (op == ReduceOp::min) ? a : b;
    return (a < b) == (op == ReduceOp::min) ? a : b;
  }
}

template <class T>
bool same(T a, T b) {  // the same bits, or both NaN
  if constexpr (kFloatingValue<T>) {
    if (std::isnan(static_cast<Value<T>>(a)) && std::isnan(static_cast<Value<T>>(b))) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
std::vector<T> random_values(std::mt19937_64& random, std::size_t count) {  // any bits, and many small numbers
  std::vector<T> values(count);
  for (T& value : values) {
    const std::uint64_t bits = random();
    if (bits % 3 != 0) {
      std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    } else {
      const int small = static_cast<int>(bits >> 8 & 7) - 4;
      value = static_cast<T>(static_cast<Value<T>>(small));
      if constexpr (kFloatingValue<T>) {
        if (small == 0 && (bits >> 16 & 1) != 0) value = T(-Value<T>(0));
      }
    }
  }
  return values;
}

constexpr ReduceOp::Kind kOps[] = {ReduceOp::sum,    ReduceOp::product, ReduceOp::min,
                                   ReduceOp::max,    ReduceOp::average, ReduceOp::bit_and,
                                   ReduceOp::bit_or, ReduceOp::bit_xor, ReduceOp::premultiplied_sum};
constexpr std::size_t kCounts[] = {0, 1, 7, 8, 9, 511, 512, 513, 1500};

template <class V>
V divided(V value, int ranks) {
  if constexpr (std::is_same_v<V, std::uint64_t>) {
    return value / static_cast<V>(ranks);
  } else if constexpr (std::is_integral_v<V>) {
    return static_cast<V>(std::int64_t{value} / ranks);
  } else {
    return value / static_cast<V>(ranks);
  }
}

// The sum in a type that holds it, divided once: integers of 64 bits alone wrap. Of bf16, whose largest add up to more
// than a float, a part of each is added.
template <class T>
T average_of(const std::vector<std::vector<T>>& in, std::size_t at) {
  const auto ranks = static_cast<int>(in.size());
  if constexpr (std::is_integral_v<T> && sizeof(T) < 8) {
    std::int64_t sum = 0;
    for (const auto& of : in) sum += of[at];
    return static_cast<T>(sum / ranks);
  } else {
    const Value<T> scale = std::is_same_v<T, rondo::bfloat16> && ranks > 1 ? Value<T>(0x1p-16) : Value<T>(1);
    Value<T> sum = static_cast<Value<T>>(in[0][at]) * scale;
    for (std::size_t rank = 1; rank < in.size(); ++rank) {
      sum = reference<Value<T>>(ReduceOp::sum, sum, static_cast<Value<T>>(in[rank][at]) * scale);
    }
    if constexpr (kFloatingValue<T>) return T(sum / (static_cast<Value<T>>(ranks) * scale));
    return T(divided(sum, ranks));
  }
}

}  // namespace

#define RONDO_ALL_TYPES                                                                                \
  std::int8_t, std::uint8_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, rondo::float16, \
      rondo::bfloat16, float, double, rondo::float8_e4m3, rondo::float8_e5m2

TEMPLATE_TEST_CASE("a pair: every operator, odd counts, in place", "", RONDO_ALL_TYPES) {
  using T = TestType;
  std::mt19937_64 random(7);
  for (const auto* table : tables()) {
    const auto& row = table->rows[static_cast<int>(rondo::data_type_of<T>)];
    REQUIRE(row.dtype == rondo::data_type_of<T>);
    for (const ReduceOp::Kind op : kOps) {
      const auto fold = row.fold[op];
      const bool bitwise = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
      REQUIRE((fold != nullptr) == (std::is_integral_v<T> || !bitwise));
      if (fold == nullptr) continue;
      for (const std::size_t count : kCounts) {
        const auto a = random_values<T>(random, count + 1);
        const auto b = random_values<T>(random, count + 1);
        std::vector<T> out(count + 1, a[count]), over_a = a, over_b = b, swapped(count + 1);
        fold_pair(fold, out.data(), a.data(), b.data(), count);
        fold_pair(fold, over_a.data(), over_a.data(), b.data(), count);
        fold_pair(fold, over_b.data(), a.data(), over_b.data(), count);
        fold_pair(fold, swapped.data(), b.data(), a.data(), count);
        int wrong = !same(out[count], a[count]);
        for (std::size_t i = 0; i < count; ++i) {
          const T expected(reference<Value<T>>(op, static_cast<Value<T>>(a[i]), static_cast<Value<T>>(b[i])));
          wrong += !same(out[i], expected) + !same(over_a[i], expected) + !same(over_b[i], expected) +
                   !same(swapped[i], expected);
        }
        INFO(rondo::name_of(op) << " count " << count);
        CHECK(wrong == 0);
      }
    }
  }
}

TEMPLATE_TEST_CASE("fold: left to right, one rounding, average divides the whole", "", RONDO_ALL_TYPES) {
  using T = TestType;
  using V = Value<T>;
  constexpr int kRanks = 5;
  std::mt19937_64 random(8);
  for (const auto* table : tables()) {
    for (const ReduceOp::Kind op : kOps) {
      const auto fold = table->rows[static_cast<int>(rondo::data_type_of<T>)].fold[op];
      if (fold == nullptr) continue;
      for (const std::size_t count : kCounts) {
        for (int ranks : {1, 4, kRanks}) {
          std::vector<std::vector<T>> in;
          const void* pointers[kRanks];
          for (int r = 0; r < ranks; ++r) in.push_back(random_values<T>(random, count));
          const auto original = in;
          for (int r = 0; r < ranks; ++r) pointers[r] = in[static_cast<std::size_t>(r)].data();
          T* out = in.back().data();  // over the last input
          fold_into(fold, out, pointers, ranks, count, ranks);
          int wrong = 0;
          for (std::size_t i = 0; i < count; ++i) {
            V sum = static_cast<V>(original[0][i]);
            for (int r = 1; r < ranks; ++r) {
              sum = reference<V>(op, sum, static_cast<V>(original[static_cast<std::size_t>(r)][i]));
            }
            wrong += !same(out[i], op == ReduceOp::average ? average_of(original, i) : T(sum));
          }
          INFO(rondo::name_of(op) << " count " << count << " ranks " << ranks);
          CHECK(wrong == 0);
        }
      }
    }
  }
}

// Inputs whose sum the type cannot hold, and whose average it does; sums in several steps too.
TEMPLATE_TEST_CASE("an average is as large as its inputs, whatever their sum", "", std::int8_t, std::uint8_t,
                   std::int32_t, std::uint32_t, rondo::float16, rondo::bfloat16, rondo::float8_e4m3,
                   rondo::float8_e5m2) {
  using T = TestType;
  constexpr DataType kType = rondo::data_type_of<T>;
  std::vector<T> largest(2);
  if constexpr (std::is_integral_v<T>) {
    largest = {std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
  } else {
    const float most = kType == DataType::f16      ? 65504.0F
                       : kType == DataType::bf16   ? 0x1.fep127F
                       : kType == DataType::f8e4m3 ? 448.0F
                                                   : 57344.0F;
    largest = {T(most), T(-most)};
  }
  constexpr std::size_t kCount = 300;
  const DataType wide = rondo::kernels::wide_type_of(kType);
  for (const auto* table : tables()) {
    const auto& row = table->rows[static_cast<int>(kType)];
    const auto wide_sum = table->rows[static_cast<int>(wide)].fold[ReduceOp::sum];
    for (const int ranks : {2, 3, 4, 7, 300}) {
      for (const T value : largest) {
        INFO(table->name << ", " << rondo::name_of(kType) << " by " << ranks);
        const std::vector<T> in(kCount, value);
        const std::vector<const void*> pointers(static_cast<std::size_t>(ranks), in.data());
        std::vector<T> out(kCount);
        fold_into(row.fold[ReduceOp::average], out.data(), pointers.data(), ranks, kCount, ranks);
        std::vector<std::byte> one(kCount * rondo::size_of(wide)), sum(one.size());
        row.widen(one.data(), in.data(), kCount);
        const std::vector<const void*> ones(static_cast<std::size_t>(ranks), one.data());
        fold_into(wide_sum, sum.data(), ones.data(), ranks, kCount);
        std::vector<T> by_steps(kCount);
        row.divide_wide(by_steps.data(), sum.data(), kCount, ranks);
        int wrong = 0;
        for (std::size_t i = 0; i < kCount; ++i) wrong += !same(out[i], value) + !same(by_steps[i], value);
        CHECK(wrong == 0);
      }
    }
  }
  CHECK(rondo::kernels::averages_widely(kType, ReduceOp::average));
  CHECK_FALSE(rondo::kernels::averages_widely(kType, ReduceOp::sum));
  CHECK_FALSE(rondo::kernels::averages_widely(DataType::f32, ReduceOp::average));
  CHECK_FALSE(rondo::kernels::averages_widely(DataType::u64, ReduceOp::average));
}

TEMPLATE_TEST_CASE("scale: multiply and divide", "", RONDO_ALL_TYPES) {
  using T = TestType;
  using V = Value<T>;
  std::mt19937_64 random(9);
  for (const auto* table : tables()) {
    const auto& row = table->rows[static_cast<int>(rondo::data_type_of<T>)];
    const auto in = random_values<T>(random, 1500);
    std::vector<T> out = in, thirds(in.size()), doubled(in.size());
    row.divide(out.data(), out.data(), out.size(), 3);
    row.multiply(thirds.data(), in.data(), in.size(), 0.5);
    row.multiply(doubled.data(), in.data(), in.size(), 3);
    int wrong = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto value = static_cast<V>(in[i]);
      wrong += !same(out[i], T(divided(value, 3)));
      if constexpr (std::is_integral_v<T>) {
        using U = std::conditional_t<sizeof(V) < 4, unsigned, std::make_unsigned_t<V>>;
        wrong += doubled[i] != static_cast<T>(static_cast<U>(value) * U{3});
        if (sizeof(T) < 8) wrong += thirds[i] != static_cast<T>(value / 2);
      } else {
        wrong += !same(thirds[i], T(value * V(0.5))) + !same(doubled[i], T(value * V(3)));
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("integers scale with truncation toward zero and stay in range") {
  const auto multiply8 = rondo::kernels::find_multiply(DataType::i8);
  const std::int8_t in[] = {-7, 7, 127, -128};
  std::int8_t out[4];
  multiply8(out, in, 4, 0.5);
  CHECK((out[0] == -3 && out[1] == 3 && out[2] == 63 && out[3] == -64));
  multiply8(out, in, 4, 1.5);
  CHECK((out[2] == 127 && out[3] == -128));
  const std::int64_t big = (std::int64_t{1} << 62) + 1;
  std::int64_t kept = 0;
  rondo::kernels::find_multiply(DataType::i64)(&kept, &big, 1, 1.0);
  CHECK(kept == big);
  const std::uint64_t top = ~std::uint64_t{0};
  std::uint64_t limited = 0;
  rondo::kernels::find_multiply(DataType::u64)(&limited, &top, 1, 1.5);
  CHECK(limited == top);
  rondo::kernels::find_multiply(DataType::u64)(&limited, &top, 1, -0.5);
  CHECK(limited == 0);
}

// Every divisor up to 300 ranks, and every byte, or numbers about the places where a quotient changes.
TEMPLATE_TEST_CASE("average divides integers exactly, truncating toward zero", "", std::int8_t, std::uint8_t,
                   std::int32_t, std::uint32_t, std::int64_t, std::uint64_t) {
  using T = TestType;
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random(11);
  for (int ranks = 1; ranks <= 300; ++ranks) {
    std::vector<T> in = {0, 1, Limits::max(), Limits::min(), static_cast<T>(Limits::max() - 1), T(Limits::min() + 1)};
    for (int i = 0; i < 256; ++i) {
      const T multiple = static_cast<T>(static_cast<T>(random()) / ranks * ranks);
      in.insert(in.end(), {static_cast<T>(i), multiple, static_cast<T>(multiple - 1), static_cast<T>(multiple + 1)});
    }
    for (const auto* table : tables()) {
      std::vector<T> out(in.size());
      table->rows[static_cast<int>(rondo::data_type_of<T>)].divide(out.data(), in.data(), in.size(), ranks);
      int wrong = 0;
      for (std::size_t i = 0; i < in.size(); ++i) wrong += out[i] != divided(in[i], ranks);
      INFO(table->name << " by " << ranks);
      CHECK(wrong == 0);
    }
  }
}
