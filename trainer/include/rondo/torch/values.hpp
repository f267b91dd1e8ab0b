// SPDX-License-Identifier: Apache-2.0
// Tensors as values: rondo::trainer::broadcast_value, gather_value, scatter_value, send_value and all_gather_value take
// them, alone and inside of containers and structs.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include <rondo/torch/stored_tensors.hpp>
#include <rondo/trainer/values.hpp>

namespace rondo::trainer {

template <>
struct Serial<StoredTensor> : SerialFields<&StoredTensor::dtype, &StoredTensor::shape, &StoredTensor::bytes> {};

// Type, shape and elements. It comes on the CPU, contiguous, and needs no gradient; an undefined one stays undefined.
// Error(unsupported) for sparse tensors and types that a checkpoint cannot hold either.
template <>
struct Serial<torch::Tensor> {
  static void write(std::vector<std::byte>& to, const torch::Tensor& tensor) {
    Serial<bool>::write(to, tensor.defined());
    if (tensor.defined()) Serial<StoredTensor>::write(to, rondo::detail::stored("a value", tensor));
  }
  static torch::Tensor read(std::span<const std::byte>& from) {
    if (!Serial<bool>::read(from)) return {};
    return rondo::detail::restored("a value", Serial<StoredTensor>::read(from));
  }
};

}  // namespace rondo::trainer
