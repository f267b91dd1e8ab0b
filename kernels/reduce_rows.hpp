// SPDX-License-Identifier: Apache-2.0
// All functions of the instruction set that the including source is compiled for.
#pragma once
#include "kernels/reduce_loops.hpp"
#include "kernels/reduce_table.hpp"

namespace rondo::kernels {
namespace {

void copy(void* out, const void* in, std::size_t bytes) {
  copy_bytes(static_cast<Byte*>(out), static_cast<const Byte*>(in), bytes);
}

void fetch(void* out, const void* in, std::size_t bytes) {
  auto* const to = static_cast<Byte*>(out);
  const auto* const from = static_cast<const Byte*>(in);
  const std::size_t at = copy_abreast<Stores::plain>(to, from, 0, bytes);
  copy_bytes(to + at, from + at, bytes - at);
}

void stream(void* out, const void* in, std::size_t bytes) {
  stream_bytes(static_cast<Byte*>(out), static_cast<const Byte*>(in), bytes);
  end_streaming();
}

void copy_twice(const CopyTarget& first, const CopyTarget& second, const void* in, std::size_t bytes) {
  constexpr Stores kPlain = Stores::plain, kStreaming = Stores::streaming;
  if (first.stores == kPlain) {
    if (second.stores == kPlain) return copy_both<kPlain, kPlain>(first.out, second.out, in, bytes);
    return copy_both<kPlain, kStreaming>(first.out, second.out, in, bytes);
  }
  if (second.stores == kPlain) return copy_both<kStreaming, kPlain>(first.out, second.out, in, bytes);
  copy_both<kStreaming, kStreaming>(first.out, second.out, in, bytes);
}

// One row per dtype; columns in the order of ReduceOp::Kind.

template <class E>
constexpr void add_wide(ReduceRow& row) {
  row.widen = widen<E>;
  row.divide_wide = divide_wide<E>;
}
// Average: what adds up an average of E.
template <class E, class Average = E>
constexpr ReduceRow floating_row(DataType dtype) {
  ReduceRow row{.dtype = dtype,
                .fold = {fold<E, Sum>, fold<E, Product>, fold<E, Min>, fold<E, Max>, fold<Average, Sum, true>, nullptr,
                         nullptr, nullptr, fold<E, Sum>},
                .multiply = multiply<E>,
                .divide = divide_all<E>};
  if constexpr (sizeof(typename E::Stored) < sizeof(typename E::Value)) add_wide<Average>(row);
  return row;
}
template <class T, class Wide = T>
constexpr ReduceRow integer_row(DataType dtype) {
  using E = Plain<T>;
  using U = Plain<typename BitsOf<T>::Type>;  // wraps around, and gives the same bits
  using Average = std::conditional_t<std::is_same_v<T, Wide>, E, Widened<T, Wide>>;
  ReduceRow row{.dtype = dtype,
                .fold = {fold<U, Sum>, fold<U, Product>, fold<E, Min>, fold<E, Max>, fold<Average, Sum, true>,
                         fold<U, And>, fold<U, Or>, fold<U, Xor>, fold<U, Sum>},
                .multiply = multiply<E>,
                .divide = divide_all<E>};
  if constexpr (!std::is_same_v<T, Wide>) add_wide<Average>(row);
  return row;
}

constexpr ReduceTable kTable = {
    RONDO_INSTRUCTION_SET,
    {
        integer_row<std::int8_t, std::int32_t>(DataType::i8),
        integer_row<std::uint8_t, std::uint32_t>(DataType::u8),
        integer_row<std::int32_t, std::int64_t>(DataType::i32),
        integer_row<std::uint32_t, std::uint64_t>(DataType::u32),
        integer_row<std::int64_t>(DataType::i64),
        integer_row<std::uint64_t>(DataType::u64),
        floating_row<F16>(DataType::f16),
        floating_row<Bf16, Bf16Part>(DataType::bf16),
        floating_row<Plain<float>>(DataType::f32),
        floating_row<Plain<double>>(DataType::f64),
        floating_row<F8e4m3>(DataType::f8e4m3),
        floating_row<F8e5m2>(DataType::f8e5m2),
    },
    copy,
    kAbreast > 1 ? fetch : nullptr,
    stream,
    copy_twice,
};

consteval bool has_all_rows() {
  for (int i = 0; i < kDataTypeCount; ++i) {
    if (static_cast<int>(kTable.rows[i].dtype) != i || kTable.rows[i].multiply == nullptr) return false;
  }
  return true;
}
static_assert(has_all_rows(), "a row for each DataType, in its order");

}  // namespace
}  // namespace rondo::kernels
