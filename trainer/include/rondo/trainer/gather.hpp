// SPDX-License-Identifier: Apache-2.0
// Values of any C++ type from every rank, of any size: predictions of unequal length, strings, structs.
#pragma once
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

// How a type becomes bytes. Trivially copyable types are copied; specialise it for one's own:
//   static void write(std::vector<std::byte>& to, const T& value);
//   static T read(std::span<const std::byte>& from);   // takes its bytes from the front
template <class T>
struct Serial {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>,
                "rondo::trainer::Serial has to be specialised for this type");
  static void write(std::vector<std::byte>& to, const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
  static T read(std::span<const std::byte>& from) {
    T value;
    if (from.size() < sizeof value) throw Error(ErrorCode::corrupt_message, "a gathered value ends too soon");
    std::memcpy(static_cast<void*>(&value), from.data(), sizeof value);
    from = from.subspan(sizeof value);
    return value;
  }
};

namespace detail {
template <class Sequence>
struct SerialSequence {
  using Element = typename Sequence::value_type;
  static void write(std::vector<std::byte>& to, const Sequence& values) {
    Serial<std::uint64_t>::write(to, values.size());
    for (const Element& value : values) Serial<Element>::write(to, value);
  }
  static Sequence read(std::span<const std::byte>& from) {
    Sequence values;
    for (std::uint64_t left = Serial<std::uint64_t>::read(from); left > 0; --left)
      values.push_back(Serial<Element>::read(from));
    return values;
  }
};
}  // namespace detail

template <class T>
struct Serial<std::vector<T>> : detail::SerialSequence<std::vector<T>> {};
template <>
struct Serial<std::string> : detail::SerialSequence<std::string> {};
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

// Collective: every rank's value, in rank order.
template <class T>
std::vector<T> all_gather_value(Communicator& communicator, const T& value) {
  std::vector<std::byte> bytes;
  Serial<T>::write(bytes, value);
  std::vector<T> all;
  for (const auto& one : communicator.all_gather_bytes(bytes)) {
    std::span<const std::byte> rest(one);
    all.push_back(Serial<T>::read(rest));
    if (!rest.empty()) throw Error(ErrorCode::mismatch, "all_gather_value: ranks gathered values of other types");
  }
  return all;
}

// Collective: the ranks' values of any number, one after the other in rank order. What a DistributedSampler with
// Tail::exact dealt out comes back as it was with `dealt`.
enum class GatherOrder : std::uint8_t { by_rank, dealt };
template <class T>
std::vector<T> gather_all(Communicator& communicator, const std::vector<T>& mine,
                          GatherOrder order = GatherOrder::by_rank) {
  const auto lists = all_gather_value(communicator, mine);
  std::vector<T> all;
  if (order == GatherOrder::by_rank) {
    for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  }
  for (std::size_t place = 0, before = 1; before != 0; ++place) {
    before = 0;
    for (const auto& list : lists) {
      if (place < list.size()) all.push_back(list[place]), ++before;
    }
  }
  return all;
}

}  // namespace rondo::trainer
