// SPDX-License-Identifier: Apache-2.0
// Reduction operators. Reads like an enum (ReduceOp::sum); premul_sum also carries a scalar.
#pragma once
#include <cstdint>
#include <string_view>

#include <rondo/dtype.hpp>
#include <rondo/export.hpp>

namespace rondo {

class ReduceOp {
 public:
  enum Kind : std::uint8_t { sum, product, min, max, average, bit_and, bit_or, bit_xor, premultiplied_sum };

  constexpr ReduceOp(Kind kind) : kind_(kind) {}  // NOLINT(google-explicit-constructor): ReduceOp::sum is a ReduceOp
  // Sum of factor * x over the ranks; the factor is this rank's own and may differ between ranks.
  static constexpr ReduceOp premul_sum(double factor) { return ReduceOp(premultiplied_sum, factor); }

  constexpr operator Kind() const { return kind_; }  // NOLINT(google-explicit-constructor): for switch
  constexpr Kind kind() const { return kind_; }
  constexpr double factor() const { return factor_; }

 private:
  constexpr ReduceOp(Kind kind, double factor) : kind_(kind), factor_(factor) {}
  Kind kind_;
  double factor_ = 1.0;
};
inline constexpr int kReduceOpCount = 9;

RONDO_API std::string_view name_of(ReduceOp::Kind op);  // "sum"
// Bitwise operators are for integers; average and premul_sum for floating types and, as sums divided or scaled with
// truncation toward zero, for integers too.
RONDO_API bool is_supported(DataType dtype, ReduceOp::Kind op);

}  // namespace rondo
