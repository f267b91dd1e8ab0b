// SPDX-License-Identifier: Apache-2.0
// Averages of types too narrow for their sums. FoldFunction adds up all inputs of one in a wider type, divides once and
// rounds (integers: cuts off); with divisor 1 it is the sum of the type. This is for who adds up in steps.
#pragma once
#include "kernels/reduce.hpp"

namespace rondo::kernels {

// Whether partial sums of the dtype would not do: so of all types narrower than 64 bits but f32.
bool averages_widely(DataType dtype, ReduceOp::Kind op);

DataType wide_type_of(DataType dtype);  // which holds the sums
using Widen = void (*)(void* out, const void* in, std::size_t count);
Widen find_widen(DataType dtype);        // each input, to be added up
Scale find_divide_wide(DataType dtype);  // a sum of these, into the dtype

}  // namespace rondo::kernels
