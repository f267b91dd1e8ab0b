// SPDX-License-Identifier: Apache-2.0
// Values of any C++ type from every rank, of any size: predictions of unequal length, strings, structs.
#pragma once
#include <string>
#include <typeinfo>
#include <vector>

#include <rondo/communicator.hpp>
#include <rondo/trainer/serial.hpp>

namespace rondo::trainer {

namespace detail {
// The name of its type goes before a value, as a number: what is of another type is not read as if it were of this one.
template <class T>
std::uint64_t type_mark() {
  std::uint64_t mark = 14695981039346656037U;  // FNV-1a
  for (const char c : std::string_view(typeid(T).name()))
    mark = (mark ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return mark;
}
template <class T>
std::vector<std::byte> packed(const T& value) {
  std::vector<std::byte> bytes;
  write_count(bytes, type_mark<T>());
  Serial<T>::write(bytes, value);
  return bytes;
}
template <class T>
T unpacked(std::span<const std::byte> bytes, int rank) {
  if (bytes.size() < sizeof(std::uint64_t) || read_count(bytes) != type_mark<T>()) {
    throw Error(ErrorCode::mismatch, "the value of rank " + std::to_string(rank) + " is of another type than here",
                rank);
  }
  T value = Serial<T>::read(bytes);
  if (!bytes.empty()) throw Error(ErrorCode::corrupt_message, "more bytes than a value takes", rank);
  return value;
}
}  // namespace detail

// Collective: every rank's value, in rank order.
template <class T>
std::vector<T> all_gather_value(Communicator& communicator, const T& value) {
  std::vector<T> all;
  for (const auto& bytes : communicator.all_gather_bytes(detail::packed(value)))
    all.push_back(detail::unpacked<T>(bytes, static_cast<int>(all.size())));
  return all;
}

// Collective. Error(mismatch) on every rank, "TITLE: rank A has …, but rank B has …; ADVICE", of the first element that
// differs, unless all ranks have this list.
RONDO_API void check_same_list(Communicator& communicator, const std::string& title,
                               const std::vector<std::string>& mine, const std::string& advice);

// Collective: the ranks' values of any number, one after the other in rank order. What a DistributedSampler with
// Tail::exact dealt out comes back as it was with `dealt`.
enum class GatherOrder : std::uint8_t { by_rank, dealt };
template <class T>
std::vector<T> gather_all(Communicator& communicator, const std::vector<T>& mine,
                          GatherOrder order = GatherOrder::by_rank) {
  if (order > GatherOrder::dealt) {
    throw Error(ErrorCode::invalid_argument,
                "gather_all: the order is " + std::to_string(static_cast<int>(order)) + ": it is by_rank or dealt");
  }
  const auto lists = all_gather_value(communicator, mine);
  std::vector<T> all;
  if (order == GatherOrder::by_rank) {
    for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  }
  for (std::size_t place = 0, before = 1; before != 0; ++place) {
    before = 0;
    for (const auto& list : lists) {
      if (place >= list.size()) continue;
      all.push_back(list[place]);
      ++before;
    }
  }
  return all;
}

}  // namespace rondo::trainer
