// SPDX-License-Identifier: Apache-2.0
// Reduction operators. Reads like an enum (ReduceOp::sum); premul_sum also carries a scalar.
#pragma once
#include <cstdint>
#include <string_view>

#include <rondo/dtype.hpp>
#include <rondo/export.hpp>

namespace rondo {

// How inputs become one: a Kind, and for premul_sum this rank's factor.
class ReduceOp {
 public:
  // premultiplied_sum is made by premul_sum().
  enum Kind : std::uint8_t { sum, product, min, max, average, bit_and, bit_or, bit_xor, premultiplied_sum };

  constexpr ReduceOp(Kind kind) : kind_(kind) {}  // NOLINT(google-explicit-constructor): ReduceOp::sum is a ReduceOp
  // Sum of factor * x over the ranks; the factor is this rank's own and may differ between ranks.
  static constexpr ReduceOp premul_sum(double factor) { return ReduceOp(premultiplied_sum, factor); }

  constexpr operator Kind() const { return kind_; }    // NOLINT(google-explicit-constructor): for switch
  constexpr Kind kind() const { return kind_; }        // must be the same on every rank
  constexpr double factor() const { return factor_; }  // of premul_sum, else 1

 private:
  constexpr ReduceOp(Kind kind, double factor) : kind_(kind), factor_(factor) {}
  Kind kind_;
  double factor_ = 1.0;
};
inline constexpr int kReduceOpCount = 9;  // of ReduceOp::Kind

RONDO_API std::string_view name_of(ReduceOp::Kind op);  // "sum"; "unknown reduce_op" for a value that is none of them
// Bitwise operators are for integers; average and premul_sum for floating types and, as sums divided or scaled with
// truncation toward zero, for integers too.
RONDO_API bool is_supported(DataType dtype, ReduceOp::Kind op);

}  // namespace rondo

// What a result can hold, and what is stored on the way to it.
// average: the sum in a wider type, divided once, then rounded (integers: cut off toward zero). Where the inputs are
//   finite it is right whatever their sum, of f16, bf16, f8e4m3, f8e5m2 and integers of 8 and 32 bits. Of f32 and f64
//   the sum itself must be finite, and of 64-bit integers it wraps around and is then divided.
// sum, premul_sum, product: of floating types they may be kept in the type itself between ranks, so that a partial one
//   may overflow (to infinity; f8e4m3: to NaN), and each is rounded, although the whole would fit: 60000 + 60000 -
//   60000 in f16. Of integers all of them wrap around, which leaves a result that fits as it is.
