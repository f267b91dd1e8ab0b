// SPDX-License-Identifier: Apache-2.0
// How a value becomes bytes, for ranks of one program: numbers, strings, containers, optional, variant, tuple, and the
// structs that are made of these.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <rondo/error.hpp>

namespace rondo::trainer {

// Trivially copyable types are copied. For a struct that is none, name its members:
//   template <> struct rondo::trainer::Serial<Prediction> : SerialFields<&Prediction::name, &Prediction::scores> {};
// Or, for anything else:
//   static void write(std::vector<std::byte>& to, const T& value);
//   static T read(std::span<const std::byte>& from);   // takes its bytes from the front
template <class T>
struct Serial;

namespace detail {

inline void write_bytes(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}
inline std::span<const std::byte> read_bytes(std::span<const std::byte>& from, std::size_t count) {
  if (from.size() < count) throw Error(ErrorCode::corrupt_message, "a value ends too soon");
  return std::exchange(from, from.subspan(count)).first(count);
}
// Each element takes a byte at least: a count that cannot be true allocates nothing.
inline std::size_t read_count(std::span<const std::byte>& from) {
  std::uint64_t count = 0;
  std::memcpy(&count, read_bytes(from, sizeof count).data(), sizeof count);
  return count;
}
inline void write_count(std::vector<std::byte>& to, std::uint64_t count) {
  write_bytes(to, std::as_bytes(std::span(&count, 1)));
}

template <class T>
struct SerialMember;
template <class Class, class Member>
struct SerialMember<Member Class::*> {
  using Of = Class;
  using Type = Member;
};

// Views: copying them sends an address.
template <class T>
inline constexpr bool is_view = std::is_pointer_v<T> || std::is_member_pointer_v<T>;
template <class C, class Traits>
inline constexpr bool is_view<std::basic_string_view<C, Traits>> = true;
template <class T, std::size_t extent>
inline constexpr bool is_view<std::span<T, extent>> = true;
template <class T>
inline constexpr bool is_view<std::reference_wrapper<T>> = true;

template <class T>
concept SerialCopied = std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> && !is_view<T>;

// Vectors, strings, lists, sets, maps: what can be walked through and be inserted into at its end.
template <class T>
concept SerialContainer = requires(T container, typename T::value_type element) {
  container.insert(container.end(), std::move(element));
  container.begin();
  container.size();
}
&&!is_view<T>;

// A map's elements have a constant key.
template <class T>
struct SerialElement {
  using Type = T;
};
template <class A, class B>
struct SerialElement<std::pair<const A, B>> {
  using Type = std::pair<A, B>;
};

template <class T>
concept SerialBlock =
    SerialContainer<T> && SerialCopied<typename T::value_type> && !std::is_same_v<typename T::value_type, bool> &&
    requires(T container) {
  { container.data() } -> std::convertible_to<typename T::value_type*>;
  container.resize(std::size_t{});
};

}  // namespace detail

// A struct by its members, in this order. It has a default constructor.
template <auto... members>
struct SerialFields {
  // The struct, and what Serial asks for.
  using T = typename detail::SerialMember<std::tuple_element_t<0, std::tuple<decltype(members)...>>>::Of;
  static void write(std::vector<std::byte>& to, const T& value) {
    (Serial<typename detail::SerialMember<decltype(members)>::Type>::write(to, value.*members), ...);
  }
  static T read(std::span<const std::byte>& from) {
    T value{};
    ((value.*members = Serial<typename detail::SerialMember<decltype(members)>::Type>::read(from)), ...);
    return value;
  }
};

// A copy of its bytes.
template <class T>
struct Serial {
  static_assert(detail::SerialCopied<T>,
                "rondo::trainer::Serial has to be specialised for this type: it is a view, or not trivially copyable");
  // Appends the value.
  static void write(std::vector<std::byte>& to, const T& value) {
    detail::write_bytes(to, std::as_bytes(std::span(&value, 1)));
  }
  // Takes its bytes from the front. Error(corrupt_message) when there are too few.
  static T read(std::span<const std::byte>& from) {
    T value;
    std::memcpy(static_cast<void*>(&value), detail::read_bytes(from, sizeof value).data(), sizeof value);
    return value;
  }
};

// One byte. Whoever copied another's that is neither 0 nor 1 would have a bool that is none.
template <>
struct Serial<bool> {
  static void write(std::vector<std::byte>& to, bool value) { to.push_back(std::byte{value}); }
  static bool read(std::span<const std::byte>& from) { return detail::read_bytes(from, 1)[0] != std::byte{0}; }
};

template <detail::SerialContainer T>
struct Serial<T> {
  using Element = typename detail::SerialElement<typename T::value_type>::Type;
  static void write(std::vector<std::byte>& to, const T& values) {
    detail::write_count(to, values.size());
    for (const auto& value : values) Serial<Element>::write(to, value);
  }
  static T read(std::span<const std::byte>& from) {
    T values{};
    const std::size_t count = detail::read_count(from);
    if (count > from.size()) throw Error(ErrorCode::corrupt_message, "a value ends too soon");
    for (std::size_t i = 0; i < count; ++i) values.insert(values.end(), Serial<Element>::read(from));
    return values;
  }
};

template <detail::SerialBlock T>
struct Serial<T> {
  using Element = typename T::value_type;
  static void write(std::vector<std::byte>& to, const T& values) {
    detail::write_count(to, values.size());
    detail::write_bytes(to, std::as_bytes(std::span(values.data(), values.size())));
  }
  static T read(std::span<const std::byte>& from) {
    const std::size_t count = detail::read_count(from);
    if (count > from.size() / sizeof(Element)) throw Error(ErrorCode::corrupt_message, "a value ends too soon");
    T values{};
    values.resize(count);
    const auto bytes = detail::read_bytes(from, count * sizeof(Element));
    if (count > 0) std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
    return values;
  }
};

// A proxy stands for its elements.
template <class Allocator>
struct Serial<std::vector<bool, Allocator>> {
  static void write(std::vector<std::byte>& to, const std::vector<bool, Allocator>& values) {
    detail::write_count(to, values.size());
    for (const bool value : values) to.push_back(std::byte{value});
  }
  static std::vector<bool, Allocator> read(std::span<const std::byte>& from) {
    std::vector<bool, Allocator> values;
    for (const std::byte value : detail::read_bytes(from, detail::read_count(from)))
      values.push_back(value != std::byte{0});
    return values;
  }
};

template <class T, std::size_t size>
struct Serial<std::array<T, size>> {
  static void write(std::vector<std::byte>& to, const std::array<T, size>& values) {
    for (const T& value : values) Serial<T>::write(to, value);
  }
  static std::array<T, size> read(std::span<const std::byte>& from) {
    std::array<T, size> values{};
    for (T& value : values) value = Serial<T>::read(from);
    return values;
  }
};

template <class A, class B>
struct Serial<std::pair<A, B>> {
  static void write(std::vector<std::byte>& to, const std::pair<A, B>& value) {
    Serial<A>::write(to, value.first);
    Serial<B>::write(to, value.second);
  }
  static std::pair<A, B> read(std::span<const std::byte>& from) {
    A first = Serial<A>::read(from);
    B second = Serial<B>::read(from);
    return {std::move(first), std::move(second)};
  }
};

template <class... T>
struct Serial<std::tuple<T...>> {
  static void write(std::vector<std::byte>& to, const std::tuple<T...>& value) {
    std::apply([&](const T&... element) { (Serial<T>::write(to, element), ...); }, value);
  }
  static std::tuple<T...> read(std::span<const std::byte>& from) { return std::tuple<T...>{Serial<T>::read(from)...}; }
};

template <class T>
struct Serial<std::optional<T>> {
  static void write(std::vector<std::byte>& to, const std::optional<T>& value) {
    to.push_back(std::byte{value.has_value()});
    if (value) Serial<T>::write(to, *value);
  }
  static std::optional<T> read(std::span<const std::byte>& from) {
    if (detail::read_bytes(from, 1)[0] == std::byte{0}) return {};
    return Serial<T>::read(from);
  }
};

template <class... T>
struct Serial<std::variant<T...>> {
  static void write(std::vector<std::byte>& to, const std::variant<T...>& value) {
    if (value.valueless_by_exception()) throw Error(ErrorCode::invalid_argument, "a variant has no value");
    detail::write_count(to, value.index());
    std::visit([&]<class One>(const One& one) { Serial<One>::write(to, one); }, value);
  }
  static std::variant<T...> read(std::span<const std::byte>& from) {
    return read_as(from, detail::read_count(from), std::index_sequence_for<T...>());
  }

 private:
  template <std::size_t... index>
  static std::variant<T...> read_as(std::span<const std::byte>& from, std::size_t wanted,
                                    std::index_sequence<index...>) {
    std::optional<std::variant<T...>> value;
    static_cast<void>(
        ((index == wanted && (value.emplace(std::in_place_index<index>, Serial<T>::read(from)), true)) || ...));
    if (!value) throw Error(ErrorCode::corrupt_message, "a variant of no such alternative");
    return *std::move(value);
  }
};

}  // namespace rondo::trainer
