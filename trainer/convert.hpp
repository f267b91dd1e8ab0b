// SPDX-License-Identifier: Apache-2.0
// Arrays of floats to two-byte floats and back, as fast as memory: rounded to nearest even, NaN stays NaN.
#pragma once
#include <cstddef>
#include <cstdint>

#include <rondo/dtype.hpp>

namespace rondo::trainer::convert {

// to[i] = from[i] * scale. `wire`: f16 or bf16.
RONDO_API void narrow(const float* from, std::uint16_t* to, std::size_t count, double scale, DataType wire);
RONDO_API void narrow(const double* from, std::uint16_t* to, std::size_t count, double scale, DataType wire);
// to[i] = from[i] / divisor.
RONDO_API void widen(const std::uint16_t* from, float* to, std::size_t count, double divisor, DataType wire);
RONDO_API void widen(const std::uint16_t* from, double* to, std::size_t count, double divisor, DataType wire);

}  // namespace rondo::trainer::convert
