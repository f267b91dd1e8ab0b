// SPDX-License-Identifier: Apache-2.0
// Small records for the store: fixed-width numbers of this machine's byte order and length-prefixed strings.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <rondo/error.hpp>

namespace rondo {

// Every byte of it has a value: none lies between fields.
template <class T>
concept Solid = std::is_trivially_copyable_v<T> &&
    (std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);

class ByteWriter {
 public:
  template <Solid T>
  ByteWriter& number(T value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof value);
    return *this;
  }
  ByteWriter& bytes(std::span<const std::byte> value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    return *this;
  }
  template <Solid T>
  ByteWriter& numbers(std::span<const T> values) {
    return bytes(std::as_bytes(values));
  }
  ByteWriter& text(std::string_view value) { return bytes(std::as_bytes(std::span(value))); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {  // throws Error(corrupt_message) at the end of the record
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <Solid T>
  T number() {
    if constexpr (std::is_same_v<T, bool>) {  // others than 0 and 1 are none
      return number<std::uint8_t>() != 0;
    } else {
      T value;
      std::memcpy(&value, cut(sizeof value).data(), sizeof value);
      return value;
    }
  }
  std::vector<std::byte> bytes() {
    const auto part = cut(number<std::uint64_t>());
    return {part.begin(), part.end()};
  }
  template <Solid T>
  std::vector<T> numbers() {
    const auto part = cut(number<std::uint64_t>());
    if (part.size() % sizeof(T) != 0)
      throw Error(ErrorCode::corrupt_message, "a list in the store ends within a number");
    std::vector<T> values(part.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), part.data(), part.size());
    return values;
  }
  std::string text() {
    const auto part = cut(number<std::uint64_t>());
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::byte> cut(std::uint64_t length) {
    if (length > rest_.size()) throw Error(ErrorCode::corrupt_message, "a record in the store is too short");
    const auto part = rest_.first(static_cast<std::size_t>(length));
    rest_ = rest_.subspan(static_cast<std::size_t>(length));
    return part;
  }
  std::span<const std::byte> rest_;
};

}  // namespace rondo
