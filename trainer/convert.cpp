// SPDX-License-Identifier: Apache-2.0
#include "trainer/convert.hpp"

#include <algorithm>
#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo::trainer::convert {
namespace {

constexpr std::size_t kBlock = 512;  // of doubles that become floats on their way, in the first cache

// Plain integer arithmetic, which the compiler turns into vectors. Adding half of the last place, and one more where
// the last place is odd, rounds to nearest even; a carry into the exponent is right, up to infinity.
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
  const std::uint32_t quiet = bits >> 16 | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

void narrow_bf16(const float* from, std::uint16_t* to, std::size_t count, float scale) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_bf16(from[i] * scale);
}
void widen_bf16(const std::uint16_t* from, float* to, std::size_t count, float divisor) {
  for (std::size_t i = 0; i < count; ++i)
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16) / divisor;
}

#if defined(__x86_64__)
[[gnu::target("avx,f16c")]] void narrow_f16c(const float* from, std::uint16_t* to, std::size_t count, float scale) {
  const __m256 factor = _mm256_set1_ps(scale);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(from + i), factor);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < count; ++i) to[i] = float16(from[i] * scale).bits;
}
[[gnu::target("avx,f16c")]] void widen_f16c(const std::uint16_t* from, float* to, std::size_t count, float divisor) {
  const __m256 by = _mm256_set1_ps(divisor);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    _mm256_storeu_ps(to + i, _mm256_div_ps(wide, by));
  }
  for (float16 one; i < count; ++i) {
    one.bits = from[i];
    to[i] = static_cast<float>(one) / divisor;
  }
}
// No processor has AVX2 without F16C, whose name not every compiler knows.
bool has_f16c() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#else
bool has_f16c() { return false; }
void narrow_f16c(const float*, std::uint16_t*, std::size_t, float) {}
void widen_f16c(const std::uint16_t*, float*, std::size_t, float) {}
#endif

void narrow_f16(const float* from, std::uint16_t* to, std::size_t count, float scale) {
  if (has_f16c()) return narrow_f16c(from, to, count, scale);
  for (std::size_t i = 0; i < count; ++i) to[i] = float16(from[i] * scale).bits;
}
void widen_f16(const std::uint16_t* from, float* to, std::size_t count, float divisor) {
  if (has_f16c()) return widen_f16c(from, to, count, divisor);
  for (std::size_t i = 0; i < count; ++i) {
    float16 one;
    one.bits = from[i];
    to[i] = static_cast<float>(one) / divisor;
  }
}

}  // namespace

void narrow(const float* from, std::uint16_t* to, std::size_t count, double scale, DataType wire) {
  return (wire == DataType::f16 ? narrow_f16 : narrow_bf16)(from, to, count, static_cast<float>(scale));
}
void narrow(const double* from, std::uint16_t* to, std::size_t count, double scale, DataType wire) {
  float block[kBlock];
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t some = std::min(kBlock, count - first);
    for (std::size_t i = 0; i < some; ++i) block[i] = static_cast<float>(from[first + i] * scale);
    narrow(block, to + first, some, 1.0, wire);
  }
}
void widen(const std::uint16_t* from, float* to, std::size_t count, double divisor, DataType wire) {
  return (wire == DataType::f16 ? widen_f16 : widen_bf16)(from, to, count, static_cast<float>(divisor));
}
void widen(const std::uint16_t* from, double* to, std::size_t count, double divisor, DataType wire) {
  float block[kBlock];
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t some = std::min(kBlock, count - first);
    widen(from + first, block, some, 1.0, wire);
    for (std::size_t i = 0; i < some; ++i) to[first + i] = static_cast<double>(block[i]) / divisor;
  }
}

}  // namespace rondo::trainer::convert
