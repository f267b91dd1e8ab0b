// SPDX-License-Identifier: Apache-2.0
// A tensor of the model, as the trainer knows it: by name, with memory that belongs to the caller.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

// Both arrays are the caller's, of `count` elements, and outlive whoever got this. Where the communicator is on a
// device they lie in device memory.
struct Parameter {
  std::string name;                // the same on every rank, and no other's
  void* values = nullptr;          // null: nothing is broadcast
  void* gradient = nullptr;        // null where gradients live in the buckets, of buffers, and where a step gave none
  std::size_t count = 0;           // elements
  DataType dtype = DataType::f32;  // a floating type, unless it is a buffer
  // Compared between ranks, written to checkpoints. Not given: {count}. Without extents: one element of no dimension.
  std::optional<std::vector<std::size_t>> shape{};
};

// With a gradient of its own. Error(invalid_argument) when the spans differ in length.
template <class T>
Parameter parameter(std::string name, std::span<T> values, std::span<T> gradient) {
  detail::check_size(Collective::all_reduce, name, values.size(), gradient.size());
  return {std::move(name), values.data(), gradient.data(), values.size(), data_type_of<T>, {}};
}
// Without a gradient of its own: a buffer, or a parameter whose gradient lives in the buckets.
template <class T>
Parameter parameter(std::string name, std::span<T> values) {
  return {std::move(name), values.data(), nullptr, values.size(), data_type_of<T>, {}};
}

}  // namespace rondo::trainer
