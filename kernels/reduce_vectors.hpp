// SPDX-License-Identifier: Apache-2.0
// Vectors of the widest registers that the including source is compiled for, by the compilers' vector extensions:
// what a loop does in a register is written out, not left to a vectoriser. Pointers have no alignment. Internal
// linkage throughout: see kernels/reduce_loops.hpp.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/convert.hpp"
#include "kernels/reduce_operators.hpp"

namespace rondo::kernels {
namespace {

using Byte = unsigned char;

#if defined(__AVX512F__)
constexpr std::size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr std::size_t kVectorBytes = 32;
#else
constexpr std::size_t kVectorBytes = 16;
#endif

template <class T, std::size_t kBytes>
struct VectorOf {
  using Type [[gnu::vector_size(kBytes)]] = T;
};
template <class T, std::size_t kBytes>
using Vector = typename VectorOf<T, kBytes>::Type;

template <class V>
concept IsVector = !std::is_arithmetic_v<V> && requires(V v) {
  v[0];
};
template <class V>
using Lane = std::remove_cvref_t<decltype(V{}[0])>;

template <IsVector V>
constexpr bool kFloating<V> = kFloating<Lane<V>>;
template <IsVector V>
struct BitsOf<V> {
  using Type = Vector<typename BitsOf<Lane<V>>::Type, sizeof(V)>;
};

}  // namespace
template <class Word>
requires requires(Word word) { word[0]; }
struct FloatOf<Word> {
  using Type [[gnu::vector_size(sizeof(Word))]] = float;
  using Signed [[gnu::vector_size(sizeof(Word))]] = std::int32_t;
};
template <class Float>
requires requires(Float value) { value[0]; }
struct WordOf<Float> {
  using Type [[gnu::vector_size(sizeof(Float))]] = std::uint32_t;
};
namespace {

template <class V>
[[gnu::always_inline]] inline V load(const Byte* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof(V));
  return value;
}
template <class V>
[[gnu::always_inline]] inline void store(Byte* to, V value) {
  __builtin_memcpy(to, &value, sizeof(V));
}

// ---- element types: how the bits in memory become what is computed in, and back ----

template <class Value, int kParts>
struct Parts {  // kParts vectors (or numbers) that came from one in memory
  Value part[kParts];
};

template <class T>
struct Plain {  // computed in as it is
  using Stored = T;
  using Value = T;
  static constexpr int kParts = 1;
  template <std::size_t kBytes>
  [[gnu::always_inline]] static Parts<Vector<T, kBytes>, 1> read(const Byte* from) {
    return {{load<Vector<T, kBytes>>(from)}};
  }
  template <std::size_t kBytes>
  [[gnu::always_inline]] static void write(Byte* to, const Parts<Vector<T, kBytes>, 1>& values) {
    store(to, values.part[0]);
  }
  [[gnu::always_inline]] static T widen(T bits) { return bits; }
  [[gnu::always_inline]] static T narrow(T value) { return value; }
};

// Integers added up in wider ones, for an average: their sum alone may wrap.
template <class T, class Wide>
struct Widened {
  using Stored = T;
  using Value = Wide;
  using Undivided = Plain<std::make_unsigned_t<T>>;
  static constexpr int kParts = sizeof(Wide) / sizeof(T);
  static constexpr int kBits = 8 * sizeof(T), kAbove = 8 * sizeof(Wide) - kBits;
  using Bits = std::make_unsigned_t<Wide>;
  template <std::size_t kBytes>
  [[gnu::always_inline]] static Parts<Vector<Wide, kBytes>, kParts> read(const Byte* from) {
    const auto words = load<Vector<Bits, kBytes>>(from);
    Parts<Vector<Wide, kBytes>, kParts> values;
    for (int k = 0; k < kParts; ++k) values.part[k] = (Vector<Wide, kBytes>)(words << (kAbove - kBits * k)) >> kAbove;
    return values;
  }
  template <std::size_t kBytes>
  [[gnu::always_inline]] static void write(Byte* to, const Parts<Vector<Wide, kBytes>, kParts>& values) {
    constexpr auto kMask = static_cast<Bits>(static_cast<std::make_unsigned_t<T>>(-1));
    Vector<Bits, kBytes> words{};
    for (int k = 0; k < kParts; ++k) words |= ((Vector<Bits, kBytes>)values.part[k] & kMask) << (kBits * k);
    store(to, words);
  }
  [[gnu::always_inline]] static Wide widen(T bits) { return bits; }
  [[gnu::always_inline]] static T narrow(Wide value) { return static_cast<T>(value); }
};

// Computed in float. A word of 32 bits holds two or four elements; part k is the k-th element of every word, so nothing
// has to be moved across a register.
template <class Bits, class Format>
struct Small {
  using Stored = Bits;
  using Value = float;
  static constexpr int kParts = 4 / sizeof(Bits);
  static constexpr int kBits = 8 * sizeof(Bits);
  template <std::size_t kBytes>
  [[gnu::always_inline]] static Parts<Vector<float, kBytes>, kParts> read(const Byte* from) {
    const auto words = load<Vector<std::uint32_t, kBytes>>(from);
    Parts<Vector<float, kBytes>, kParts> values;
    for (int k = 0; k < kParts; ++k) values.part[k] = Format::widen(words >> (kBits * k));
    return values;
  }
  template <std::size_t kBytes>
  [[gnu::always_inline]] static void write(Byte* to, const Parts<Vector<float, kBytes>, kParts>& values) {
    auto words = Format::narrow_result(values.part[0]);
    for (int k = 1; k < kParts; ++k) words |= Format::narrow_result(values.part[k]) << (kBits * k);
    store(to, words);
  }
  [[gnu::always_inline]] static float widen(Bits bits) { return Format::widen(std::uint32_t{bits}); }
  [[gnu::always_inline]] static Bits narrow(float value) { return static_cast<Bits>(Format::narrow_result(value)); }
};

#ifdef __AVX512BW__
struct Bf16 : Small<std::uint16_t, Bfloat> {
  // Rounds as Bfloat does, all elements of a vector at once: up where what is cut off, with an odd last bit, is more
  // than half of that. Of a NaN nothing is cut off. Without registers of masks word by word is faster.
  template <std::size_t kBytes>
  [[gnu::always_inline]] static void write(Byte* to, const Parts<Vector<float, kBytes>, 2>& values) {
    using Words = Vector<std::uint32_t, kBytes>;
    using Halves = Vector<std::uint16_t, kBytes>;
    const Words low = __builtin_bit_cast(Words, values.part[0]), high = __builtin_bit_cast(Words, values.part[1]);
    const Halves kept = (Halves)((low >> 16) | (high & 0xffff0000u));
    const Halves cut = (Halves)((low & 0xffffu) | (high << 16));
    store(to, (cut | (kept & 1)) > 0x8000 ? kept + 1 : kept);
  }
};
#else
using Bf16 = Small<std::uint16_t, Bfloat>;
#endif
// For an average: a float is no larger than a bf16, so each is added as a part of itself. That is exact down to the
// smallest, since a float goes on as far below it.
struct Bf16Part : Bf16 {
  using Undivided = Bf16;
  static constexpr float kScale = kBf16Part;
  template <std::size_t kBytes>
  [[gnu::always_inline]] static Parts<Vector<float, kBytes>, 2> read(const Byte* from) {
    auto values = Bf16::read<kBytes>(from);
    for (auto& part : values.part) part *= kScale;
    return values;
  }
  [[gnu::always_inline]] static float widen(std::uint16_t bits) { return Bf16::widen(bits) * kScale; }
};
using F8e4m3 = Small<std::uint8_t, E4m3>;
using F8e5m2 = Small<std::uint8_t, E5m2>;

#if defined(__F16C__)
// The processor's own conversions round as Half does.
struct F16 {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr int kParts = 2;
  static constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  template <std::size_t kBytes>
  [[gnu::always_inline]] static Parts<Vector<float, kBytes>, 2> read(const Byte* from) {
    return {{widen_vector<kBytes>(from), widen_vector<kBytes>(from + kBytes / 2)}};
  }
  template <std::size_t kBytes>
  [[gnu::always_inline]] static void write(Byte* to, const Parts<Vector<float, kBytes>, 2>& values) {
    narrow_vector<kBytes>(to, values.part[0]);
    narrow_vector<kBytes>(to + kBytes / 2, values.part[1]);
  }
#ifdef __AVX512F__
  // What is loaded again at once, as a whole: after stores of halves the load would wait until both are in the cache.
  [[gnu::always_inline]] static void write_whole(Byte* to, const Parts<Vector<float, 64>, 2>& values) {
    const __m512i low = _mm512_castsi256_si512(_mm512_maskz_cvtps_ph(kAll, values.part[0], kToNearest));
    store(to, _mm512_maskz_inserti64x4(0xff, low, _mm512_maskz_cvtps_ph(kAll, values.part[1], kToNearest), 1));
  }
#endif
  [[gnu::always_inline]] static float widen(std::uint16_t bits) { return _cvtsh_ss(bits); }
  [[gnu::always_inline]] static std::uint16_t narrow(float value) { return _cvtss_sh(value, kToNearest); }

 private:
  template <std::size_t kBytes>
  [[gnu::always_inline]] static Vector<float, kBytes> widen_vector(const Byte* from) {
    if constexpr (kBytes == 16) {
      return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(from)));
    } else if constexpr (kBytes == 32) {
      return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from)));
#ifdef __AVX512F__
    } else {
      return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from)));
#endif
    }
  }
  template <std::size_t kBytes>
  [[gnu::always_inline]] static void narrow_vector(Byte* to, Vector<float, kBytes> value) {
    if constexpr (kBytes == 16) {
      _mm_storel_epi64(reinterpret_cast<__m128i_u*>(to), _mm_cvtps_ph(value, kToNearest));
    } else if constexpr (kBytes == 32) {
      _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to), _mm256_cvtps_ph(value, kToNearest));
#ifdef __AVX512F__
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), _mm512_maskz_cvtps_ph(kAll, value, kToNearest));
#endif
    }
  }
#ifdef __AVX512F__
  static constexpr __mmask16 kAll = 0xffff;  // masked by nothing: GCC 12 warns about the undefined operand otherwise
#endif
};
#elif defined(__aarch64__)
struct F16 {  // every processor of this kind converts
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr int kParts = 2;
  template <std::size_t kBytes>
  [[gnu::always_inline]] static Parts<Vector<float, kBytes>, 2> read(const Byte* from) {
    const auto halves = __builtin_bit_cast(float16x8_t, load<Vector<std::uint16_t, kBytes>>(from));
    return {{vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)}};
  }
  template <std::size_t kBytes>
  [[gnu::always_inline]] static void write(Byte* to, const Parts<Vector<float, kBytes>, 2>& values) {
    store(to, vcvt_high_f16_f32(vcvt_f16_f32(values.part[0]), values.part[1]));
  }
  [[gnu::always_inline]] static float widen(std::uint16_t bits) { return __builtin_bit_cast(__fp16, bits); }
  [[gnu::always_inline]] static std::uint16_t narrow(float value) {
    return __builtin_bit_cast(std::uint16_t, static_cast<__fp16>(value));
  }
};
#else
using F16 = Small<std::uint16_t, Half>;
#endif

// ---- stores past the caches ----

// `to` is aligned to a vector. Elsewhere than on x86 a processor that sees whole lines written streams by itself.
[[gnu::always_inline]] inline void stream_vector(Byte* to, const Byte* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from)));
#elif defined(__x86_64__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from)));
#else
  store(to, load<Vector<Byte, kVectorBytes>>(from));
#endif
}
// Before any store that tells another thread of streamed bytes: x86 orders these after nothing else.
[[gnu::always_inline]] inline void end_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace
}  // namespace rondo::kernels
