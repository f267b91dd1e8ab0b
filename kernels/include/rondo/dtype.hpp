// SPDX-License-Identifier: Apache-2.0
// Element types of the collectives, and the 1- and 2-byte floating types that C++20 lacks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <rondo/export.hpp>

namespace rondo {

// Integers, IEEE floats, bfloat16, and the two 8-bit floats of the OCP specification.
enum class DataType : std::uint8_t { i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2 };
inline constexpr int kDataTypeCount = 12;  // of DataType

// IEEE half precision. Storage types: convert to float, compute, convert back. Conversions round to nearest even.
struct float16 {
  std::uint16_t bits = 0;  // as they lie in memory
  float16() = default;
  RONDO_API explicit float16(float value);    // the nearest
  RONDO_API explicit operator float() const;  // exact
  friend bool operator==(float16, float16) = default;
};
// The upper half of a float.
struct bfloat16 {
  std::uint16_t bits = 0;  // as they lie in memory
  bfloat16() = default;
  RONDO_API explicit bfloat16(float value);   // the nearest
  RONDO_API explicit operator float() const;  // exact
  friend bool operator==(bfloat16, bfloat16) = default;
};
// 4 bits of exponent, 3 of mantissa; no infinity.
struct float8_e4m3 {
  std::uint8_t bits = 0;  // as they lie in memory
  float8_e4m3() = default;
  RONDO_API explicit float8_e4m3(float value);  // the nearest
  RONDO_API explicit operator float() const;    // exact
  friend bool operator==(float8_e4m3, float8_e4m3) = default;
};
// 5 bits of exponent, 2 of mantissa.
struct float8_e5m2 {
  std::uint8_t bits = 0;  // as they lie in memory
  float8_e5m2() = default;
  RONDO_API explicit float8_e5m2(float value);  // the nearest
  RONDO_API explicit operator float() const;    // exact
  friend bool operator==(float8_e5m2, float8_e5m2) = default;
};

// Bytes of one element. std::invalid_argument for a value that is none of the types.
RONDO_API std::size_t size_of(DataType dtype);
RONDO_API std::string_view name_of(DataType dtype);  // "f32"; "unknown dtype" for a value that is none of them

template <class T>
struct DataTypeOf;  // specialised for the types below; any other T does not compile
template <>
struct DataTypeOf<std::int8_t> {
  static constexpr DataType value = DataType::i8;
};
template <>
struct DataTypeOf<std::uint8_t> {
  static constexpr DataType value = DataType::u8;
};
template <>
struct DataTypeOf<std::int32_t> {
  static constexpr DataType value = DataType::i32;
};
template <>
struct DataTypeOf<std::uint32_t> {
  static constexpr DataType value = DataType::u32;
};
template <>
struct DataTypeOf<long> {
  static constexpr DataType value = DataType::i64;
};
template <>
struct DataTypeOf<unsigned long> {
  static constexpr DataType value = DataType::u64;
};
template <>
struct DataTypeOf<long long> {
  static constexpr DataType value = DataType::i64;
};
template <>
struct DataTypeOf<unsigned long long> {
  static constexpr DataType value = DataType::u64;
};
template <>
struct DataTypeOf<float16> {
  static constexpr DataType value = DataType::f16;
};
template <>
struct DataTypeOf<bfloat16> {
  static constexpr DataType value = DataType::bf16;
};
template <>
struct DataTypeOf<float> {
  static constexpr DataType value = DataType::f32;
};
template <>
struct DataTypeOf<double> {
  static constexpr DataType value = DataType::f64;
};
template <>
struct DataTypeOf<float8_e4m3> {
  static constexpr DataType value = DataType::f8e4m3;
};
template <>
struct DataTypeOf<float8_e5m2> {
  static constexpr DataType value = DataType::f8e5m2;
};
template <>
struct DataTypeOf<std::byte> {
  static constexpr DataType value = DataType::u8;
};
template <>
struct DataTypeOf<char> {
  static constexpr DataType value = DataType::i8;
};

// The DataType of elements of type T.
template <class T>
inline constexpr DataType data_type_of = DataTypeOf<T>::value;

}  // namespace rondo
