// SPDX-License-Identifier: Apache-2.0
// Element-wise reductions on host memory, one function per dtype and operator, found by table.
// Halves and fp8 compute in float. Pointers need no alignment beyond the element's; `out` may equal an input.
#pragma once
#include <cstddef>
#include <cstdint>

#include <rondo/dtype.hpp>
#include <rondo/reduce_op.hpp>

namespace rondo::kernels {

// out[i] = a[i] op b[i]. average and premultiplied_sum combine like sum.
using Combine = void (*)(void* out, const void* a, const void* b, std::size_t count);
// out[i] = in[i] * factor, or in[i] / divisor: the operators' first and last touch of a value.
using Scale = void (*)(void* out, const void* in, std::size_t count, double factor);

Combine find_combine(DataType dtype, ReduceOp::Kind op);  // null where !is_supported
Scale find_multiply(DataType dtype);                      // premul_sum: each rank's input, once
Scale find_divide(DataType dtype);                        // average: the complete sum, once

// Left fold in the order given: out = ((in[0] op in[1]) op in[2]) ... Halves and fp8 accumulate in float and round
// once; `divisor` (average) divides before that rounding. `out` may equal any input.
using FoldFunction = void (*)(void* out, const void* const* in, int inputs, std::size_t count, double divisor);
FoldFunction find_fold(DataType dtype, ReduceOp::Kind op);

// How memory is written. streaming: past the caches, for what nobody reads soon; other threads that see a later store
// of this one see these bytes too.
enum class Stores : std::uint8_t { plain, streaming };

// The same fold with several outputs, which all get the same bits. An output may equal any input.
struct FoldJob {
  void* const* out;
  int outputs;
  const void* const* in;
  int inputs;
  std::size_t count;
  double divisor = 1;
  Stores stores = Stores::plain;
};
void fold(DataType dtype, ReduceOp::Kind op, const FoldJob& job);

// memcpy that may store past the caches.
void copy(void* out, const void* in, std::size_t bytes, Stores stores);

}  // namespace rondo::kernels
