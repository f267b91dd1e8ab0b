// SPDX-License-Identifier: Apache-2.0
// Conversions against a slow reference: decode in double by the format's definition, encode by searching all values.
#include <rondo/dtype.hpp>
#include <rondo/reduce_op.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  bool infinity;
};
template <class T>
constexpr Format kFormat{};
template <>
constexpr Format kFormat<rondo::float16>{5, 10, true};
template <>
constexpr Format kFormat<rondo::bfloat16>{8, 7, true};
template <>
constexpr Format kFormat<rondo::float8_e4m3>{4, 3, false};
template <>
constexpr Format kFormat<rondo::float8_e5m2>{5, 2, true};

double decode(unsigned magnitude, Format f) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const unsigned fraction = magnitude & ((1u << f.mantissa_bits) - 1);
  if (f.infinity && exponent == (1 << f.exponent_bits) - 1) return fraction == 0 ? HUGE_VAL : NAN;
  if (!f.infinity && magnitude == (1u << (f.exponent_bits + f.mantissa_bits)) - 1) return NAN;
  if (exponent == 0) return std::ldexp(fraction, 1 - bias - f.mantissa_bits);
  return std::ldexp(fraction + (1u << f.mantissa_bits), exponent - bias - f.mantissa_bits);
}

// All finite magnitudes, and one more: where the next would be, to which values round that overflow.
std::vector<double> magnitudes(Format f) {
  std::vector<double> values;
  for (unsigned bits = 0; std::isfinite(decode(bits, f)); ++bits) values.push_back(decode(bits, f));
  values.push_back(2 * values.back() - values[values.size() - 2]);
  return values;
}

unsigned encode(float value, Format f, const std::vector<double>& values) {
  const unsigned sign = std::signbit(value) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0u;
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto last = static_cast<unsigned>(values.size() - 1);
  if (magnitude >= values.back()) return sign | last;
  const auto above = static_cast<unsigned>(std::upper_bound(values.begin(), values.end(), magnitude) - values.begin());
  const double low = magnitude - values[above - 1];
  const double high = values[above] - magnitude;
  const bool up = high < low || (high == low && above % 2 == 0);
  return sign | (up ? above : above - 1);
}

}  // namespace

TEMPLATE_TEST_CASE("small floats: every value widens exactly and comes back", "", rondo::float16, rondo::bfloat16,
                   rondo::float8_e4m3, rondo::float8_e5m2) {
  const Format f = kFormat<TestType>;
  const unsigned sign = 1u << (f.exponent_bits + f.mantissa_bits);
  int wrong = 0;
  for (unsigned bits = 0; bits < 2 * sign; ++bits) {
    TestType small;
    small.bits = static_cast<decltype(small.bits)>(bits);
    const auto wide = static_cast<float>(small);
    const double expected = decode(bits & (sign - 1), f);
    if (std::isnan(expected)) {
      wrong += !std::isnan(wide) || !std::isnan(static_cast<float>(TestType(wide)));
    } else {
      wrong += static_cast<double>(std::fabs(wide)) != expected || std::signbit(wide) != (bits >= sign);
      wrong += TestType(wide) != small;
    }
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("small floats: rounding is to nearest even", "", rondo::float16, rondo::bfloat16, rondo::float8_e4m3,
                   rondo::float8_e5m2) {
  const Format f = kFormat<TestType>;
  const std::vector<double> values = magnitudes(f);
  std::vector<float> inputs = {0.0f, std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min()};
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {  // each value and each midpoint, with their neighbours
    for (const double at : {values[i], (values[i] + values[i + 1]) / 2}) {
      const auto middle = static_cast<float>(at);
      inputs.insert(inputs.end(), {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, HUGE_VALF)});
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) inputs.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  int wrong = 0;
  for (const float magnitude : inputs) {
    if (std::isnan(magnitude)) {
      wrong += !std::isnan(static_cast<float>(TestType(magnitude)));
      continue;
    }
    for (const float value : {magnitude, -magnitude}) {
      const bool right = TestType(value).bits == encode(value, f, values);
      if (!right && wrong++ == 0) CHECK(TestType(value).bits == encode(value, f, values));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("known encodings") {
  CHECK(rondo::float16(1.0f).bits == 0x3c00);
  CHECK(rondo::float16(65520.0f).bits == 0x7c00);
  CHECK(rondo::bfloat16(1.0f).bits == 0x3f80);
  CHECK(rondo::float8_e4m3(448.0f).bits == 0x7e);
  CHECK(rondo::float8_e4m3(465.0f).bits == 0x7f);
  CHECK(rondo::float8_e4m3(-HUGE_VALF).bits == 0xff);
  CHECK(rondo::float8_e5m2(57344.0f).bits == 0x7b);
  CHECK(rondo::float8_e5m2(HUGE_VALF).bits == 0x7c);
}

TEST_CASE("names and sizes") {
  CHECK(rondo::size_of(rondo::DataType::f8e5m2) == 1);
  CHECK(rondo::size_of(rondo::DataType::bf16) == 2);
  CHECK(rondo::size_of(rondo::DataType::u64) == 8);
  CHECK(rondo::name_of(rondo::DataType::f8e4m3) == "f8e4m3");
  CHECK(rondo::name_of(rondo::ReduceOp::premultiplied_sum) == "premul_sum");
}
