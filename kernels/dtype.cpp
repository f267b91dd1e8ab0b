// SPDX-License-Identifier: Apache-2.0
#include <rondo/dtype.hpp>

#include <stdexcept>
#include <string>

#include "kernels/convert.hpp"

namespace rondo {
namespace {

struct Row {
  DataType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr Row kRows[kDataTypeCount] = {
    {DataType::i8, "i8", 1},   {DataType::u8, "u8", 1},         {DataType::i32, "i32", 4},
    {DataType::u32, "u32", 4}, {DataType::i64, "i64", 8},       {DataType::u64, "u64", 8},
    {DataType::f16, "f16", 2}, {DataType::bf16, "bf16", 2},     {DataType::f32, "f32", 4},
    {DataType::f64, "f64", 8}, {DataType::f8e4m3, "f8e4m3", 1}, {DataType::f8e5m2, "f8e5m2", 1},
};
constexpr bool in_order() {
  for (int i = 0; i < kDataTypeCount; ++i) {
    if (static_cast<int>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

std::size_t size_of(DataType dtype) {
  const int value = static_cast<int>(dtype);
  if (value < kDataTypeCount) [[likely]]
    return kRows[value].bytes;
  throw std::invalid_argument("size_of: dtype " + std::to_string(value) + " is none of ours: they are 0 to " +
                              std::to_string(kDataTypeCount - 1));
}
std::string_view name_of(DataType dtype) {
  return static_cast<int>(dtype) < kDataTypeCount ? kRows[static_cast<int>(dtype)].name : "unknown dtype";
}

float16::float16(float value) : bits(static_cast<std::uint16_t>(kernels::Half::narrow(value))) {}
float16::operator float() const { return kernels::Half::widen(std::uint32_t{bits}); }
bfloat16::bfloat16(float value) : bits(static_cast<std::uint16_t>(kernels::Bfloat::narrow(value))) {}
bfloat16::operator float() const { return kernels::Bfloat::widen(std::uint32_t{bits}); }
float8_e4m3::float8_e4m3(float value) : bits(static_cast<std::uint8_t>(kernels::E4m3::narrow(value))) {}
float8_e4m3::operator float() const { return kernels::E4m3::widen(std::uint32_t{bits}); }
float8_e5m2::float8_e5m2(float value) : bits(static_cast<std::uint8_t>(kernels::E5m2::narrow(value))) {}
float8_e5m2::operator float() const { return kernels::E5m2::widen(std::uint32_t{bits}); }

}  // namespace rondo
