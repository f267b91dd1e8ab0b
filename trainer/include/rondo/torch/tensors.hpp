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

// A tensor of the module, and what it was when it was last looked at. `home` shares that memory, so that it stays.
struct NamedTensor {
  std::string name;
  torch::Tensor value;
  torch::Tensor home;
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

inline bool is_plain(const torch::Tensor& tensor) {
  return tensor.layout() == torch::kStrided && tensor.is_contiguous();
}

inline NamedTensor named_tensor(std::string name, const torch::Tensor& tensor, const Communicator& communicator) {
  const torch::Device device = torch_device(communicator);
  if (tensor.device() != device) {
    torch_refuse("'" + name + "' is on " + tensor.device().str() + ", but the communicator on " + device.str() +
                 "; call module->to(...) before the module is wrapped, or make the communicator there");
  }
  if (!is_plain(tensor)) {
    torch_refuse("'" + name + "' is not contiguous; call .contiguous() before the module is wrapped",
                 ErrorCode::unsupported);
  }
  return {std::move(name), tensor, tensor.tensor_data()};
}

inline bool is_of_kind(const NamedTensor& tensor) {
  const torch::Tensor &now = tensor.value, &then = tensor.home;
  return now.scalar_type() == then.scalar_type() && now.device() == then.device() && now.sizes() == then.sizes() &&
         is_plain(now);
}

// It may lie in other memory; whatever else it may have become, it cannot be averaged with the others' any more.
inline void check_kind(const NamedTensor& tensor) {
  if (is_of_kind(tensor)) return;
  const torch::Tensor &now = tensor.value, &then = tensor.home;
  const auto refuse = [&](const std::string& was, const std::string& is, const char* instead) {
    torch_refuse("'" + tensor.name + "' was " + was + " when the module was wrapped and is " + is + " now; " + instead);
  };
  if (kind_of(now) != kind_of(then))
    refuse(kind_of(then), kind_of(now), "call module->to(...) first and wrap the module then");
  if (now.sizes() != then.sizes()) {
    refuse(c10::str(then.sizes()), c10::str(now.sizes()), "wrap the module when it is complete");
  }
  refuse("contiguous", "not", "call .contiguous() on what the module gets");
}

// Takes note of other memory, to which torch::load lets it go.
inline void follow(NamedTensor& tensor) {
  if (is_of_kind(tensor) && tensor.value.data_ptr() != tensor.home.data_ptr()) tensor.home = tensor.value.tensor_data();
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

// Only moved: what the library cannot calculate with is bytes to it, in one more dimension where an element is several.
inline trainer::Parameter buffer_of(const NamedTensor& tensor) {
  if (data_type(tensor.value.scalar_type()) != nullptr) return parameter_of(tensor);
  const auto sizes = tensor.value.sizes();
  std::vector<std::size_t> shape(sizes.begin(), sizes.end());
  if (tensor.value.element_size() > 1) shape.push_back(static_cast<std::size_t>(tensor.value.element_size()));
  return {tensor.name, tensor.value.data_ptr(), nullptr, static_cast<std::size_t>(tensor.value.nbytes()), DataType::u8,
          shape};
}

// Null where the module has none.
inline void* gradient_of(const NamedTensor& tensor) {
  const torch::Tensor& gradient = tensor.value.grad();
  if (!gradient.defined()) return nullptr;
  if (gradient.scalar_type() == tensor.value.scalar_type() && gradient.device() == tensor.value.device() &&
      is_plain(gradient)) {
    return gradient.data_ptr();
  }
  torch_refuse("the gradient of parameter '" + tensor.name + "' is " + kind_of(gradient) +
               ", or not contiguous; it has to be as the parameter is");
}

// A tensor like another one, in memory that belongs to somebody else.
inline torch::Tensor tensor_at(void* memory, const torch::Tensor& like) {
  if (like.numel() == 0) return torch::empty_like(like);
  return torch::from_blob(memory, like.sizes(), like.options().requires_grad(false));
}

}  // namespace rondo::detail
