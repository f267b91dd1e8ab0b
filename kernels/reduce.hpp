// SPDX-License-Identifier: Apache-2.0
// Element-wise reductions on host memory, one function per dtype and operator, found by table. Halves and fp8 compute
// in float. Pointers need no alignment at all; an output may equal an input exactly, but never overlaps one partly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <rondo/dtype.hpp>
#include <rondo/export.hpp>
#include <rondo/reduce_op.hpp>

namespace rondo::kernels {

// How memory is written. streaming: past the caches, for what nobody reads soon; other threads that see a later store
// of this one see these bytes too.
enum class Stores : std::uint8_t { plain, streaming };

// Left fold in the order given: out = ((in[0] op in[1]) op in[2]) ... Halves and fp8 accumulate in float and round
// once; `divisor` (average alone) divides before that rounding. premultiplied_sum folds like sum. All outputs get the
// same bits; an output may equal any input. One pass: each input is read once, each output written once.
struct FoldJob {
  void* const* out;
  int outputs;
  const void* const* in;
  int inputs;
  std::size_t count;
  double divisor = 1;
  Stores stores = Stores::plain;
  Stores first_stores = stores;  // of the first output
  Stores stores_of(int output) const { return output == 0 ? first_stores : stores; }
};
using FoldFunction = void (*)(const FoldJob& job);
FoldFunction find_fold(DataType dtype, ReduceOp::Kind op);  // null where !is_supported; worth keeping: a call costs ns
inline void fold(DataType dtype, ReduceOp::Kind op, const FoldJob& job) { find_fold(dtype, op)(job); }

// With one output; and out = a op b, where average is sum.
inline void fold_into(FoldFunction fold, void* out, const void* const* in, int inputs, std::size_t count,
                      double divisor = 1) {
  fold({.out = &out, .outputs = 1, .in = in, .inputs = inputs, .count = count, .divisor = divisor});
}
inline void fold_pair(FoldFunction fold, void* out, const void* a, const void* b, std::size_t count) {
  const void* const in[] = {a, b};
  fold_into(fold, out, in, 2, count);
}

// out[i] = in[i] * factor, or in[i] / divisor: the operators' first and last touch of a value.
using Scale = void (*)(void* out, const void* in, std::size_t count, double factor);
Scale find_multiply(DataType dtype);  // premul_sum: each rank's input, once
Scale find_divide(DataType dtype);    // average: the complete sum, once

// memcpy that may store past the caches; the plain one is worth keeping where a call costs ns.
using Copy = void (*)(void* out, const void* in, std::size_t bytes);
Copy find_copy();
RONDO_API void copy(void* out, const void* in, std::size_t bytes, Stores stores);  // for benchmarks too
void fetch(void* out, const void* in, std::size_t bytes);  // the plain one, of what has yet to come into the caches
bool copies_as_strings();  // long ones through the caches, which then do not fetch what they overwrite

// The same to two places or more, which overlap neither each other nor what is copied; it is read from memory once.
struct CopyTarget {
  void* out;
  Stores stores;
};
void copy_twice(const CopyTarget& first, const CopyTarget& second, const void* in, std::size_t bytes);
void copy_to_all(std::span<void* const> out, const void* in, std::size_t bytes, Stores stores);

}  // namespace rondo::kernels
