// SPDX-License-Identifier: Apache-2.0
// Between libtorch's tensors and the trainer's parameters.
#pragma once
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include <rondo/trainer/parameter.hpp>

namespace rondo::detail {

[[noreturn]] inline void torch_refuse(const std::string& why, ErrorCode code = ErrorCode::invalid_argument) {
  throw Error(code, "DistributedDataParallel: " + why);
}

// A tensor of the module, and its memory when the module was wrapped.
struct NamedTensor {
  std::string name;
  torch::Tensor value;
  torch::Tensor home;  // shares that memory, so it stays, and no other gets the same address
};

inline std::string kind_of(const torch::Tensor& tensor) {
  return std::string(c10::toString(tensor.scalar_type())) + " on " + tensor.device().str();
}

inline torch::Device torch_device(const Communicator& communicator) {
  const Device device = communicator.device();
  if (device.kind == Device::Kind::cpu) return {torch::kCPU};
  if (device.kind == Device::Kind::cuda) return {torch::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
  torch_refuse("libtorch has no tensors on a simulated device; make the communicator with Device::cpu() or cuda()",
               ErrorCode::unsupported);
}

inline NamedTensor named_tensor(std::string name, const torch::Tensor& tensor, const Communicator& communicator) {
  const torch::Device device = torch_device(communicator);
  if (tensor.device() != device) {
    torch_refuse("'" + name + "' is on " + tensor.device().str() + ", but the communicator on " + device.str() +
                 "; call module->to(...) before the module is wrapped, or make the communicator there");
  }
  if (tensor.layout() != torch::kStrided || !tensor.is_contiguous()) {
    torch_refuse("'" + name + "' is not contiguous; call .contiguous() before the module is wrapped",
                 ErrorCode::unsupported);
  }
  return {std::move(name), tensor, tensor.tensor_data()};
}

inline void check_in_place(const NamedTensor& tensor) {
  if (tensor.value.scalar_type() == tensor.home.scalar_type() && tensor.value.device() == tensor.home.device()) return;
  torch_refuse("'" + tensor.name + "' was " + kind_of(tensor.home) + " when the module was wrapped and is " +
               kind_of(tensor.value) + " now; call module->to(...) first and wrap the module then");
}

inline void bring_home(NamedTensor& tensor) {
  if (tensor.value.data_ptr() == tensor.home.data_ptr()) return;
  check_in_place(tensor);
  tensor.home.copy_(tensor.value);
  tensor.value.set_data(tensor.home);
}

// Null where the library has no such type.
inline const DataType* data_type(torch::ScalarType type) {
  static const std::pair<torch::ScalarType, DataType> table[] = {
      {torch::kFloat, DataType::f32},     {torch::kDouble, DataType::f64}, {torch::kHalf, DataType::f16},
      {torch::kBFloat16, DataType::bf16}, {torch::kLong, DataType::i64},   {torch::kInt, DataType::i32},
      {torch::kChar, DataType::i8},       {torch::kByte, DataType::u8},
  };
  for (const auto& row : table) {
    if (row.first == type) return &row.second;
  }
  return nullptr;
}

inline trainer::Parameter parameter_of(const NamedTensor& tensor) {
  const DataType* const dtype = data_type(tensor.value.scalar_type());
  if (dtype == nullptr) {
    torch_refuse("parameter '" + tensor.name + "' is " + kind_of(tensor.value) + ", which cannot be averaged",
                 ErrorCode::unsupported);
  }
  const auto sizes = tensor.value.sizes();
  return {tensor.name, tensor.value.data_ptr(),
          nullptr,     static_cast<std::size_t>(tensor.value.numel()),
          *dtype,      std::vector<std::size_t>(sizes.begin(), sizes.end())};
}

// Only moved: what the library cannot calculate with is bytes to it.
inline trainer::Parameter buffer_of(const NamedTensor& tensor) {
  if (data_type(tensor.value.scalar_type()) != nullptr) return parameter_of(tensor);
  return {tensor.name, tensor.value.data_ptr(), nullptr, static_cast<std::size_t>(tensor.value.nbytes()), DataType::u8,
          {}};
}

// A tensor like another one, in memory that belongs to somebody else.
inline torch::Tensor tensor_at(void* memory, const torch::Tensor& like) {
  if (like.numel() == 0) return torch::empty_like(like);
  return torch::from_blob(memory, like.sizes(), like.options().requires_grad(false));
}

}  // namespace rondo::detail
