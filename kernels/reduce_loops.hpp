// SPDX-License-Identifier: Apache-2.0
// The loops behind kernels/reduce.hpp, for whatever instruction set the including source is compiled with. All names
// have internal linkage and nothing of std is called (types only): no function compiled for a newer processor may be
// merged with another source's copy. An output may equal an input but never overlaps one partly, so no iteration sees
// another's store.
#pragma once
#include "kernels/reduce.hpp"
#include "kernels/reduce_divide.hpp"
#include "kernels/reduce_table.hpp"
#include "kernels/reduce_vectors.hpp"

namespace rondo::kernels {
namespace {

constexpr std::size_t kLineBytes = 64, kAheadBytes = 2048;
constexpr std::size_t kStageBytes = 4096;  // what passes through a buffer is still in the first-level cache

// Pages side by side: the processor fetches ahead within each of them, so that more lines are under way from memory.
// Where a vector is a line, so that stores past the caches leave whole.
constexpr std::size_t kPageBytes = 4096, kAbreast = kVectorBytes == kLineBytes ? 4 : 1;

// each(at) for a vector of every page from `at` on. Returns where it ended, which is where it began where pages go one
// after the other.
template <class Each>
[[gnu::always_inline]] inline std::size_t go_abreast(std::size_t at, std::size_t end, Each each) {
  constexpr std::size_t kStep = kAbreast * kPageBytes;
  if (kAbreast == 1 || !fetches_within_pages) return at;
  for (; at + kStep <= end; at += kStep) {
    for (std::size_t in_page = at; in_page < at + kPageBytes; in_page += kVectorBytes) {
      each(in_page);
      asm volatile("" ::: "memory");  // or the compiler makes memcpys of the loop
    }
  }
  return at;
}

// ---- the canonical left fold ----

struct Inputs {  // of a fold, from an element on
  const void* const* in;
  int count;
  std::size_t first_byte;
  Divisor divisor;
  [[gnu::always_inline]] const Byte* at(int rank) const { return static_cast<const Byte*>(in[rank]) + first_byte; }
};

// kUnits registers of memory side by side, all inputs. kInputs 0: any number.
template <class E, std::size_t kBytes, std::size_t kUnits>
struct Units {
  decltype(E::template read<kBytes>(nullptr)) unit[kUnits];
};
template <class E, class Op, bool kDivide, int kInputs, std::size_t kBytes, std::size_t kUnits>
[[gnu::always_inline]] inline Units<E, kBytes, kUnits> sum_vectors(const Inputs& inputs, std::size_t at) {
  Units<E, kBytes, kUnits> sum;
  const Byte* from = inputs.at(0) + at;
  for (std::size_t u = 0; u < kUnits; ++u) sum.unit[u] = E::template read<kBytes>(from + u * kBytes);
  const int ranks = kInputs == 0 ? inputs.count : kInputs;
  for (int rank = 1; rank < ranks; ++rank) {
    from = inputs.at(rank) + at;
    for (std::size_t u = 0; u < kUnits; ++u) {
      const auto next = E::template read<kBytes>(from + u * kBytes);
      for (int k = 0; k < E::kParts; ++k) sum.unit[u].part[k] = Op::apply(sum.unit[u].part[k], next.part[k]);
    }
  }
  if constexpr (kDivide) {
    for (std::size_t u = 0; u < kUnits; ++u) {
      for (int k = 0; k < E::kParts; ++k) sum.unit[u].part[k] = inputs.divisor.divide(sum.unit[u].part[k]);
    }
  }
  return sum;
}

// kReadBack: into a buffer that is read next.
template <bool kReadBack, class E, std::size_t kBytes, std::size_t kUnits>
[[gnu::always_inline]] inline void write_units(Byte* to, const Units<E, kBytes, kUnits>& units) {
  for (std::size_t u = 0; u < kUnits; ++u) {
    if constexpr (kReadBack && requires { E::write_whole(to, units.unit[u]); }) {
      E::write_whole(to + u * kBytes, units.unit[u]);
    } else {
      E::template write<kBytes>(to + u * kBytes, units.unit[u]);
    }
  }
}

template <class E, class Op, bool kDivide, int kInputs, std::size_t kBytes, std::size_t kUnits>
[[gnu::always_inline]] inline void fold_vectors(Byte* to, const Inputs& inputs, std::size_t at) {
  write_units<false>(to + at, sum_vectors<E, Op, kDivide, kInputs, kBytes, kUnits>(inputs, at));
}

template <class E, class Op, bool kDivide>
[[gnu::always_inline]] inline void fold_number(Byte* to, const Inputs& inputs, std::size_t at) {
  using Stored = typename E::Stored;
  auto sum = E::widen(load<Stored>(inputs.at(0) + at));
  for (int rank = 1; rank < inputs.count; ++rank) {
    sum = Op::apply(sum, E::widen(load<Stored>(inputs.at(rank) + at)));
  }
  if constexpr (kDivide) sum = inputs.divisor.divide(sum);
  store<Stored>(to + at, E::narrow(sum));
}

// The first bytes, all those that fill registers; returns how many.
template <class E, class Op, bool kDivide, int kInputs>
[[gnu::always_inline]] inline std::size_t fold_registers(Byte* to, const Inputs& inputs, std::size_t bytes) {
  constexpr std::size_t kUnits = 4 / E::kParts;
  constexpr std::size_t kStep = kUnits * kVectorBytes;
  std::size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    fold_vectors<E, Op, kDivide, kInputs, kVectorBytes, kUnits>(to, inputs, at);
  }
  for (; kUnits > 1 && at + kVectorBytes <= bytes; at += kVectorBytes) {
    fold_vectors<E, Op, kDivide, kInputs, kVectorBytes, 1>(to, inputs, at);
  }
  return at;
}

template <class E, class Op, bool kDivide>
void fold_bytes(Byte* to, const Inputs& inputs, std::size_t bytes) {
  std::size_t at = inputs.count == 2 ? fold_registers<E, Op, kDivide, 2>(to, inputs, bytes)
                                     : fold_registers<E, Op, kDivide, 0>(to, inputs, bytes);
  for (; kVectorBytes > 16 && at + 16 <= bytes; at += 16) fold_vectors<E, Op, kDivide, 0, 16, 1>(to, inputs, at);
  for (; at < bytes; at += sizeof(typename E::Stored)) fold_number<E, Op, kDivide>(to, inputs, at);
}
using FoldBytes = void (*)(Byte* to, const Inputs& inputs, std::size_t bytes);

// What fills words of so many bytes, from `at` on; returns where it ended.
template <std::size_t kBytes>
[[gnu::always_inline]] inline std::size_t copy_words(Byte* to, const Byte* from, std::size_t at, std::size_t bytes) {
  for (; at + kBytes <= bytes; at += kBytes) {
    store(to + at, load<Vector<Byte, kBytes>>(from + at));
    asm volatile("" ::: "memory");  // or the compiler makes a memcpy of the loop
  }
  return at;
}

// Not the C library's, which from a few KiB on is one `rep movsb` wherever the two lie (see copy() in reduce.cpp).
void copy_bytes(Byte* to, const Byte* from, std::size_t bytes) {
  constexpr std::size_t kStep = 4 * kVectorBytes;
  std::size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    __builtin_memcpy(to + at, from + at, kVectorBytes);
    __builtin_memcpy(to + at + kVectorBytes, from + at + kVectorBytes, kVectorBytes);
    __builtin_memcpy(to + at + 2 * kVectorBytes, from + at + 2 * kVectorBytes, kVectorBytes);
    __builtin_memcpy(to + at + 3 * kVectorBytes, from + at + 3 * kVectorBytes, kVectorBytes);
    asm volatile("" ::: "memory");  // or the compiler makes a memcpy of the loop
  }
  if constexpr (kVectorBytes > 32) at = copy_words<kVectorBytes>(to, from, at, bytes);
  if constexpr (kVectorBytes > 16) at = copy_words<32>(to, from, at, bytes);
  at = copy_words<16>(to, from, at, bytes);
  at = copy_words<8>(to, from, at, bytes);
  at = copy_words<4>(to, from, at, bytes);
  copy_words<1>(to, from, at, bytes);
}

template <Stores kStores>
[[gnu::always_inline]] inline void store_vector(Byte* to, const Byte* from) {
  if constexpr (kStores == Stores::streaming) {
    stream_vector(to, from);
  } else {
    __builtin_memcpy(to, from, kVectorBytes);
  }
}

// All loads of a step before its stores: one behind a store to the same place of a page would wait for it.
template <Stores kStores>
std::size_t copy_abreast(Byte* to, const Byte* from, std::size_t at, std::size_t end) {
  return go_abreast(at, end, [&](std::size_t in_page) {
    alignas(kVectorBytes) Byte read[kAbreast][kVectorBytes];  // of which the compiler makes registers
    for (std::size_t k = 0; k < kAbreast; ++k) __builtin_memcpy(read[k], from + in_page + k * kPageBytes, kVectorBytes);
    for (std::size_t k = 0; k < kAbreast; ++k) store_vector<kStores>(to + in_page + k * kPageBytes, read[k]);
  });
}

// What is stored past the caches is aligned.
template <Stores kStores, class E, std::size_t kUnits>
[[gnu::always_inline]] inline void store_units(Byte* to, const Units<E, kVectorBytes, kUnits>& units) {
  if constexpr (kStores == Stores::plain) return write_units<false>(to, units);
  alignas(kVectorBytes) Byte wholes[kUnits * kVectorBytes];  // of which the compiler makes registers
  write_units<true>(wholes, units);
  for (std::size_t u = 0; u < kUnits; ++u) stream_vector(to + u * kVectorBytes, wholes + u * kVectorBytes);
}

// `to` may lie anywhere: single bytes until it is aligned, and after the last vector.
void stream_bytes(Byte* to, const Byte* from, std::size_t bytes) {
  std::size_t at = (0 - reinterpret_cast<std::uintptr_t>(to)) % kVectorBytes;
  if (at > bytes) at = bytes;
  __builtin_memcpy(to, from, at);
  at = copy_abreast<Stores::streaming>(to, from, at, bytes);
  for (; at + kVectorBytes <= bytes; at += kVectorBytes) stream_vector(to + at, from + at);
  __builtin_memcpy(to + at, from + at, bytes - at);
}

// One of two places that the same bytes are copied to: where the next vector goes, and what it is.
template <Stores kStores>
struct CopyLane {
  Byte* to;
  const Byte* from;
  std::size_t bytes;

  void align() {
    if constexpr (kStores == Stores::plain) return;
    const std::size_t head = (0 - reinterpret_cast<std::uintptr_t>(to)) % kVectorBytes;
    const std::size_t moved = head < bytes ? head : bytes;
    __builtin_memcpy(to, from, moved);
    to += moved, from += moved, bytes -= moved;
  }
  [[gnu::always_inline]] void write(std::size_t at) const { store_vector<kStores>(to + at, from + at); }
  void finish(std::size_t at) const {
    for (; at + kVectorBytes <= bytes; at += kVectorBytes) write(at);
    __builtin_memcpy(to + at, from + at, bytes - at);
  }
};

// In turns, so that stores of one kind go on while those of the other wait.
template <Stores kFirst, Stores kSecond>
void copy_both(void* first, void* second, const void* in, std::size_t bytes) {
  CopyLane<kFirst> one{static_cast<Byte*>(first), static_cast<const Byte*>(in), bytes};
  CopyLane<kSecond> two{static_cast<Byte*>(second), static_cast<const Byte*>(in), bytes};
  one.align();
  two.align();
  const std::size_t both = one.bytes < two.bytes ? one.bytes : two.bytes;
  constexpr std::size_t kStep = 2 * kVectorBytes;
  std::size_t at = go_abreast(0, both, [&](std::size_t in_page) {
    for (std::size_t k = 0; k < kAbreast; ++k) one.write(in_page + k * kPageBytes);
    for (std::size_t k = 0; k < kAbreast; ++k) two.write(in_page + k * kPageBytes);
  });
  for (; at + kStep <= both; at += kStep) {
    one.write(at);
    one.write(at + kVectorBytes);
    two.write(at);
    two.write(at + kVectorBytes);
    asm volatile("" ::: "memory");  // or the compiler makes memcpys of the loop
  }
  one.finish(at);
  two.finish(at);
  if (kFirst == Stores::streaming || kSecond == Stores::streaming) end_streaming();
}

// Bytes [first, end) of outputs, the first and the last ones of all: from a buffer that stays in the cache, so that no
// output is read or is anything special.
void fold_staged(const FoldJob& job, const Divisor& divisor, std::size_t first, std::size_t end, FoldBytes fold_bytes) {
  alignas(kVectorBytes) Byte stage[kStageBytes];
  for (; first < end; first += kStageBytes) {
    const std::size_t bytes = end - first < kStageBytes ? end - first : kStageBytes;
    fold_bytes(stage, {job.in, job.inputs, first, divisor}, bytes);
    for (int k = 0; k < job.outputs; ++k) {
      Byte* to = static_cast<Byte*>(job.out[k]) + first;
      if (job.stores_of(k) == Stores::streaming) {
        stream_bytes(to, stage, bytes);
      } else {
        copy_bytes(to, stage, bytes);
      }
    }
  }
}

// Bytes before the first whole vector of every output that is stored past the caches; all of them where such outputs do
// not begin alike or a vector would begin within an element.
std::size_t unaligned_bytes(const FoldJob& job, std::size_t element) {
  const std::size_t all = job.count * element;
  std::size_t head = kVectorBytes;  // of those seen
  for (int k = 0; k < job.outputs; ++k) {
    if (job.stores_of(k) == Stores::plain) continue;
    const std::size_t theirs = (0 - reinterpret_cast<std::uintptr_t>(job.out[k])) % kVectorBytes;
    if (head != kVectorBytes && theirs != head) return all;
    head = theirs;
  }
  if (head == kVectorBytes) return 0;
  return head % element != 0 || head > all ? all : head;
}

// A few registers at a time: loads of inputs and stores are then in flight together, which a larger buffer keeps apart.
// kStreams: all outputs, several, past the caches. Returns where it ended.
template <class E, class Op, bool kDivide, bool kStreams>
std::size_t fold_registers_to_all(const FoldJob& job, const Divisor& divisor, std::size_t at, std::size_t end) {
  constexpr std::size_t kUnits = kStreams ? E::kParts == 1 ? 2 : 1 : 4 / E::kParts;
  constexpr std::size_t kStep = kUnits * kVectorBytes;
  alignas(kVectorBytes) Byte sums[kStep];
  for (; at + kStep <= end; at += kStep) {
    write_units<true>(sums, sum_vectors<E, Op, kDivide, 0, kVectorBytes, kUnits>({job.in, job.inputs, at, divisor}, 0));
    for (int k = 0; k < job.outputs; ++k) {
      Byte* to = static_cast<Byte*>(job.out[k]) + at;
      if (kStreams || job.stores_of(k) == Stores::streaming) {
        for (std::size_t u = 0; u < kUnits; ++u) stream_vector(to + u * kVectorBytes, sums + u * kVectorBytes);
      } else {
        for (std::size_t u = 0; u < kUnits; ++u)
          __builtin_memcpy(to + u * kVectorBytes, sums + u * kVectorBytes, kVectorBytes);
      }
    }
  }
  return at;
}

// More instructions a line than a load, a sum and a store: fewer lines are then under way at once.
template <class Op>
constexpr bool kPicks = false;
template <bool kLess>
constexpr bool kPicks<Extreme<kLess>> = true;
template <class E, class Op>
constexpr bool kTakesLong = kVectorBytes >= kLineBytes &&
                            (E::kParts > 1 || (kPicks<Op> && kFloating<typename E::Value>));

// Two inputs, and one output or two: the fewer instructions a vector takes, the more of them are under way. Through
// the caches without a buffer, whose stores would wait behind those of lines that are not in the caches yet; past them
// a vector of each at a time. What takes long asks for lines ahead where the processor does not, not beyond the end:
// there another rank may write.
template <class E, class Op, bool kDivide, int kOutputs, Stores kFirst, Stores kSecond = kFirst>
std::size_t fold_pair_to_all(const FoldJob& job, const Divisor& divisor, std::size_t at, std::size_t end) {
  constexpr bool kStreams = kFirst == Stores::streaming || kSecond == Stores::streaming;
  constexpr std::size_t kUnits = kStreams ? 1 : 4 / E::kParts;
  constexpr std::size_t kStep = kUnits * kVectorBytes;
  const void* const in[] = {job.in[0], job.in[1]};
  Byte* const first = static_cast<Byte*>(job.out[0]);
  Byte* const second = static_cast<Byte*>(job.out[kOutputs - 1]);
  const bool asks_ahead = kTakesLong<E, Op> && fetches_within_pages;
  if constexpr (kStreams && kOutputs == 1) {
    at = go_abreast(at, end, [&](std::size_t in_page) {
      Units<E, kVectorBytes, kUnits> sums[kAbreast];
      for (std::size_t k = 0; k < kAbreast; ++k)
        sums[k] = sum_vectors<E, Op, kDivide, 2, kVectorBytes, kUnits>({in, 2, in_page + k * kPageBytes, divisor}, 0);
      for (std::size_t k = 0; k < kAbreast; ++k) store_units<kFirst>(first + in_page + k * kPageBytes, sums[k]);
    });
  }
  for (; at + kStep <= end; at += kStep) {
    if (asks_ahead && at + kAheadBytes + kStep <= end) {
      for (std::size_t ahead = kAheadBytes; ahead < kAheadBytes + kStep; ahead += kLineBytes) {
        for (const void* input : in) __builtin_prefetch(static_cast<const Byte*>(input) + at + ahead);
      }
    }
    const auto sums = sum_vectors<E, Op, kDivide, 2, kVectorBytes, kUnits>({in, 2, at, divisor}, 0);
    store_units<kFirst>(first + at, sums);
    if constexpr (kOutputs == 2) store_units<kSecond>(second + at, sums);
  }
  return at;
}

template <class E, class Op, bool kDivide>
[[gnu::always_inline]] inline auto find_fold_to_all(const FoldJob& job) {
  constexpr Stores kPlain = Stores::plain, kStreaming = Stores::streaming;
  if (job.inputs != 2 || job.outputs > 2) {
    const bool streams = job.outputs > 1 && job.first_stores == kStreaming && job.stores == kStreaming;
    return streams ? fold_registers_to_all<E, Op, kDivide, true> : fold_registers_to_all<E, Op, kDivide, false>;
  }
  if (job.outputs == 1) return fold_pair_to_all<E, Op, kDivide, 1, kStreaming>;
  if (job.first_stores == kPlain)
    return job.stores == kPlain ? fold_pair_to_all<E, Op, kDivide, 2, kPlain>
                                : fold_pair_to_all<E, Op, kDivide, 2, kPlain, kStreaming>;
  return job.stores == kPlain ? fold_pair_to_all<E, Op, kDivide, 2, kStreaming, kPlain>
                              : fold_pair_to_all<E, Op, kDivide, 2, kStreaming>;
}

// Apart, or every short fold would save the registers that this one needs.
template <class E, class Op, bool kDivide>
[[gnu::noinline]] void fold_to_all(const FoldJob& job, const Divisor& divisor) {
  constexpr std::size_t kElement = sizeof(typename E::Stored);
  const std::size_t end = job.count * kElement, head = unaligned_bytes(job, kElement);
  fold_staged(job, divisor, 0, head, fold_bytes<E, Op, kDivide>);
  const auto to_all = find_fold_to_all<E, Op, kDivide>(job);
  fold_staged(job, divisor, to_all(job, divisor, head, end), end, fold_bytes<E, Op, kDivide>);
  end_streaming();
}

// How an element type is added up where nothing is divided, and what it multiplies values by on their way into a sum.
template <class E>
struct Terms {
  using Undivided = E;
  static constexpr double kScale = 1;
};
template <class E>
requires requires { typename E::Undivided; }
struct Terms<E> {
  using Undivided = typename E::Undivided;
  static constexpr double kScale = [] {
    if constexpr (requires { E::kScale; }) return static_cast<double>(E::kScale);
    return 1.0;
  }();
};
template <class E>
[[gnu::always_inline]] inline Divisor divisor_of(double divisor) {
  return Divisor::of<typename E::Value>(divisor * Terms<E>::kScale);
}

template <class E, class Op, bool kDivide = false>
void fold(const FoldJob& job) {
  constexpr std::size_t kElement = sizeof(typename E::Stored);
  if constexpr (kDivide) {
    if (job.divisor == 1) return fold<typename Terms<E>::Undivided, Op>(job);
  }
  const Divisor divisor = kDivide ? divisor_of<E>(job.divisor) : Divisor{};
  if (job.outputs == 1 && job.first_stores == Stores::plain) {
    fold_bytes<E, Op, kDivide>(static_cast<Byte*>(job.out[0]), {job.in, job.inputs, 0, divisor}, job.count * kElement);
  } else {
    fold_to_all<E, Op, kDivide>(job, divisor);
  }
}

// ---- out = in * factor, out = in / divisor ----

struct MultiplyFloating {
  double factor;  // a NaN is the ordinary one: see Bfloat::narrow_result
  template <class Value>
  [[gnu::always_inline]] Value operator()(Value value) const {
    if constexpr (IsVector<Value>) {
      return value * static_cast<Lane<Value>>(factor);
    } else {
      return value * static_cast<Value>(factor);
    }
  }
};
struct MultiplyWhole {  // wraps around; of unsigned values
  std::uint64_t factor;
  template <class Value>
  [[gnu::always_inline]] Value operator()(Value value) const {
    if constexpr (IsVector<Value>) {
      return value * static_cast<Lane<Value>>(factor);
    } else {
      return multiply_whole(value, factor);
    }
  }
};
struct MultiplySaturating {  // numbers alone: no instruction set has it
  double factor;
  template <class Value>
  [[gnu::always_inline]] Value operator()(Value value) const requires std::is_arithmetic_v<Value> {
    return saturate<Value>(static_cast<double>(value) * factor);
  }
};

template <class E, class F>
[[gnu::always_inline]] inline void map(void* out, const void* in, std::size_t count, F f) {
  using Stored = typename E::Stored;
  auto* to = static_cast<Byte*>(out);
  auto* from = static_cast<const Byte*>(in);
  const std::size_t bytes = count * sizeof(Stored);
  std::size_t at = 0;
  if constexpr (requires { f(E::template read<kVectorBytes>(from).part[0]); }) {
    for (; at + kVectorBytes <= bytes; at += kVectorBytes) {
      auto values = E::template read<kVectorBytes>(from + at);
      for (int k = 0; k < E::kParts; ++k) values.part[k] = f(values.part[k]);
      E::template write<kVectorBytes>(to + at, values);
    }
  }
  for (; at < bytes; at += sizeof(Stored)) store<Stored>(to + at, E::narrow(f(E::widen(load<Stored>(from + at)))));
}

template <class E>
void multiply(void* out, const void* in, std::size_t count, double factor) {
  if constexpr (kFloating<typename E::Value>) {
    map<E>(out, in, count, MultiplyFloating{factor != factor ? __builtin_nan("") : factor});
  } else if (is_whole(factor)) {
    using Unsigned = Plain<typename BitsOf<typename E::Value>::Type>;
    map<Unsigned>(out, in, count, MultiplyWhole{static_cast<std::uint64_t>(static_cast<std::int64_t>(factor))});
  } else {
    map<E>(out, in, count, MultiplySaturating{factor});
  }
}

// ---- sums kept in a wider type, between the first input and the result of an average ----

template <class E>
void widen(void* out, const void* in, std::size_t count) {
  using Stored = typename E::Stored;
  auto* to = static_cast<Byte*>(out);
  auto* from = static_cast<const Byte*>(in);
  for (std::size_t i = 0; i < count; ++i)
    store(to + i * sizeof(typename E::Value), E::widen(load<Stored>(from + i * sizeof(Stored))));
}
template <class E>
void divide_wide(void* out, const void* in, std::size_t count, double divisor) {
  using Stored = typename E::Stored;
  using Value = typename E::Value;
  auto* to = static_cast<Byte*>(out);
  auto* from = static_cast<const Byte*>(in);
  const Divisor by = divisor_of<E>(divisor);
  for (std::size_t i = 0; i < count; ++i)
    store<Stored>(to + i * sizeof(Stored), E::narrow(by.divide(load<Value>(from + i * sizeof(Value)))));
}

template <class E>
void divide_all(void* out, const void* in, std::size_t count, double divisor) {
  fold_into(fold<E, Sum, true>, out, &in, 1, count, divisor);
}

}  // namespace
}  // namespace rondo::kernels
