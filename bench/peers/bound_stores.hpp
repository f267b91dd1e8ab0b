// SPDX-License-Identifier: Apache-2.0
// Copies and sums of floats, through the caches or past them.
#pragma once
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collective.hpp"

namespace rondo::peers {

enum class Stores { cached, fetched, streamed };  // fetched: through the caches, of what is in none of them

// Longer copies through the caches; of Zen 3 and 4 loops are faster.
inline bool copies_as_strings() {
#if defined(__x86_64__)
  static const bool pays = __builtin_cpu_is("amdfam19h") == 0;
  return pays;
#else
  return false;
#endif
}

inline bool is_intel() {
#if defined(__x86_64__)
  static const bool intel = __builtin_cpu_is("intel") != 0;
  return intel;
#else
  return false;
#endif
}

// What calls may take for the caches to be worth using: of Intel what a core has to itself.
inline std::size_t least_streamed() {
  constexpr long kLeast = 1 << 20, kMost = 4 << 20;
  if (!is_intel()) return 16 << 20;
  return static_cast<std::size_t>(std::clamp(::sysconf(_SC_LEVEL2_CACHE_SIZE), kLeast, kMost));
}

// How results of a call are stored: where all ranks' inputs, and a third of what they are to get, take so many bytes
// (half as many again where everybody copies most of what it gets, as strings; twice as many where nothing is staged),
// they are better not kept in the caches.
inline Stores kept(Cell each, bool staged) {
  const std::size_t streamed = least_streamed();
  std::size_t inputs = 0, outputs = 0;
  for (each.rank = 0; each.rank < each.np; ++each.rank) inputs += each.input(), outputs += each.output();
  const std::size_t bytes = (inputs + outputs / 3) * 4;
  const bool copies = !each.rooted() && !each.is(Collective::reduce_scatter) && copies_as_strings();
  const std::size_t limit = !staged ? 2 * streamed : copies ? streamed / 2 * 3 : streamed;
  return bytes >= limit ? Stores::streamed : Stores::cached;
}

namespace vectors {

using Vector = float __attribute__((vector_size(64), aligned(4)));
constexpr std::size_t kLanes = 16;

template <bool kStreamed>
void put(float* to, Vector value) {
#if defined(__AVX512F__)
  if constexpr (kStreamed) return _mm512_stream_ps(to, reinterpret_cast<__m512>(value));
#endif
  *reinterpret_cast<Vector*>(to) = value;
}

// Of one array or two, four pages side by side: Intel's processors fetch ahead within each. Returns where it ended, 0
// by others and where no store is a whole line.
template <bool kStreamed>
std::size_t sum_abreast(float* to, float* also, const float* const* in, int inputs, std::size_t count) {
  constexpr std::size_t kPage = 4096 / sizeof(float), kPages = 4;
  std::size_t i = 0;
#if defined(__AVX512F__)
  if (!is_intel()) return i;
  for (; i + kPages * kPage <= count; i += kPages * kPage) {
    for (std::size_t at = i; at < i + kPage; at += kLanes) {
      Vector value[kPages];
      for (std::size_t k = 0; k < kPages; ++k) value[k] = *reinterpret_cast<const Vector*>(in[0] + at + k * kPage);
      if (inputs == 2) {
        for (std::size_t k = 0; k < kPages; ++k) value[k] += *reinterpret_cast<const Vector*>(in[1] + at + k * kPage);
      }
      for (std::size_t k = 0; k < kPages; ++k) put<kStreamed>(to + at + k * kPage, value[k]);
      for (std::size_t k = 0; k < kPages && also != nullptr; ++k) put<false>(also + at + k * kPage, value[k]);
    }
  }
#endif
  return i;
}

template <bool kStreamed>
void sum(float* to, float* also, const float* const* in, int inputs, std::size_t count) {
  constexpr std::size_t kUnrolled = 4, kStride = kLanes * kUnrolled;
  const auto at = [&](int input, std::size_t i) { return *reinterpret_cast<const Vector*>(in[input] + i); };
  std::size_t i = kStreamed && (inputs == 1 || (inputs == 2 && also == nullptr))
                      ? sum_abreast<true>(to, also, in, inputs, count)
                      : 0;
  for (; i + kStride <= count; i += kStride) {
    Vector value[kUnrolled];
    for (std::size_t k = 0; k < kUnrolled; ++k) value[k] = at(0, i + k * kLanes);
    for (int n = 1; n < inputs; ++n)
      for (std::size_t k = 0; k < kUnrolled; ++k) value[k] += at(n, i + k * kLanes);
    for (std::size_t k = 0; k < kUnrolled; ++k) put<kStreamed>(to + i + k * kLanes, value[k]);
    if (also == nullptr) continue;
    for (std::size_t k = 0; k < kUnrolled; ++k) put<false>(also + i + k * kLanes, value[k]);
  }
  for (; i < count; ++i) {
    float value = in[0][i];
    for (int n = 1; n < inputs; ++n) value += in[n][i];
    to[i] = value;
    if (also != nullptr) also[i] = value;
  }
}

// Into several arrays, all of them alike.
template <bool kStreamed>
void sum_to(float* const* to, int outputs, const float* const* in, int inputs, std::size_t count) {
  constexpr std::size_t kUnrolled = kStreamed ? 2 : 4, kStride = kLanes * kUnrolled;
  std::size_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    Vector value[kUnrolled];
    for (std::size_t k = 0; k < kUnrolled; ++k) value[k] = *reinterpret_cast<const Vector*>(in[0] + i + k * kLanes);
    for (int n = 1; n < inputs; ++n)
      for (std::size_t k = 0; k < kUnrolled; ++k) value[k] += *reinterpret_cast<const Vector*>(in[n] + i + k * kLanes);
    for (int n = 0; n < outputs; ++n)
      for (std::size_t k = 0; k < kUnrolled; ++k) put<kStreamed>(to[n] + i + k * kLanes, value[k]);
  }
  for (; i < count; ++i) {
    float value = in[0][i];
    for (int n = 1; n < inputs; ++n) value += in[n][i];
    for (int n = 0; n < outputs; ++n) to[n][i] = value;
  }
}

}  // namespace vectors

// Arrays of `to` begin at vectors.
inline void sum_to(float* const* to, int outputs, const float* const* in, int inputs, std::size_t count, Stores how) {
  if (how == Stores::streamed) return vectors::sum_to<true>(to, outputs, in, inputs, count);
  vectors::sum_to<false>(to, outputs, in, inputs, count);
}

// The sum of several arrays, in `to`, and through the caches in `also` if that is not null.
inline void sum(float* to, float* also, const float* const* in, int inputs, std::size_t count, Stores how) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(to) % sizeof(vectors::Vector) == 0;
  if (how == Stores::streamed && aligned) return vectors::sum<true>(to, also, in, inputs, count);
  vectors::sum<false>(to, also, in, inputs, count);
}

inline void copy(float* to, const float* from, std::size_t count, Stores how, float* also = nullptr) {
#if defined(__x86_64__)
  constexpr std::size_t kLeastString = 4 << 10;
  std::size_t bytes = count * sizeof(float);
  const bool cached = how == Stores::cached || (how == Stores::fetched && !is_intel());
  if (copies_as_strings() && cached && also == nullptr && bytes >= kLeastString) {
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
    return;
  }
#endif
  const bool fetches = how == Stores::fetched && also == nullptr;
  const std::size_t begun = fetches ? vectors::sum_abreast<false>(to, nullptr, &from, 1, count) : 0;
  from += begun;
  sum(to + begun, also, &from, 1, count - begun, how);
}

// Before anybody may see what was streamed.
inline void fence() {
#if defined(__AVX512F__)
  _mm_sfence();
#endif
}

}  // namespace rondo::peers
