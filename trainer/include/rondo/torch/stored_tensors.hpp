// SPDX-License-Identifier: Apache-2.0
// Between libtorch's tensors and those of a checkpoint.
#pragma once
#include <torch/types.h>

#include <cstring>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include <rondo/trainer/checkpoint.hpp>

namespace rondo::detail {

[[noreturn]] inline void checkpoint_refuse(const std::string& why, ErrorCode code = ErrorCode::invalid_argument) {
  throw Error(code, "checkpoint: " + why);
}

// By libtorch's names, since some types came with later versions. Null: the format has no such type.
inline const char* stored_dtype(torch::ScalarType type) {
  static const std::pair<const char*, const char*> table[] = {
      {"Float", "F32"},
      {"Double", "F64"},
      {"Half", "F16"},
      {"BFloat16", "BF16"},
      {"Long", "I64"},
      {"Int", "I32"},
      {"Short", "I16"},
      {"Char", "I8"},
      {"Byte", "U8"},
      {"Bool", "BOOL"},
      {"UInt16", "U16"},
      {"UInt32", "U32"},
      {"UInt64", "U64"},
      {"ComplexFloat", "C64"},
      {"Float8_e4m3fn", "F8_E4M3"},
      {"Float8_e5m2", "F8_E5M2"},
      {"Float8_e8m0fnu", "F8_E8M0"},
      {"Float8_e4m3fnuz", "F8_E4M3FNUZ"},
      {"Float8_e5m2fnuz", "F8_E5M2FNUZ"},
  };
  const std::string name = c10::toString(type);
  for (const auto& [ours, format] : table) {
    if (name == ours) return format;
  }
  return nullptr;
}

// What a tensor has to be stored as. Error(unsupported) by name.
inline const char* stored_dtype_of(const std::string& name, const torch::Tensor& tensor) {
  const char* const dtype = stored_dtype(tensor.scalar_type());
  if (dtype == nullptr || tensor.layout() != torch::kStrided) {
    checkpoint_refuse("'" + name + "' is " + c10::toString(tensor.scalar_type()) +
                          (tensor.layout() == torch::kStrided ? "" : " and not dense") +
                          ", which a safetensors file cannot hold",
                      ErrorCode::unsupported);
  }
  return dtype;
}

inline std::vector<std::size_t> stored_shape(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

inline trainer::StoredTensor stored(const std::string& name, const torch::Tensor& tensor) {
  trainer::StoredTensor all{stored_dtype_of(name, tensor), stored_shape(tensor), {}};
  const torch::NoGradGuard guard;
  const torch::Tensor here = tensor.to(torch::kCPU).contiguous();
  all.bytes.resize(here.nbytes());
  if (!all.bytes.empty()) std::memcpy(all.bytes.data(), here.data_ptr(), all.bytes.size());
  return all;
}

// A tensor of its own, on the CPU. Error(unsupported) by name when this libtorch has no such type.
inline torch::Tensor restored(const std::string& name, const trainer::StoredTensor& from) {
  for (int type = 0; type < static_cast<int>(torch::ScalarType::NumOptions); ++type) {
    const char* const dtype = stored_dtype(static_cast<torch::ScalarType>(type));
    if (dtype == nullptr || from.dtype != dtype) continue;
    const std::vector<std::int64_t> sizes(from.shape.begin(), from.shape.end());
    torch::Tensor tensor = torch::empty(sizes, torch::TensorOptions().dtype(static_cast<torch::ScalarType>(type)));
    if (tensor.nbytes() != from.bytes.size())
      checkpoint_refuse("'" + name + "' has not the bytes of its shape", ErrorCode::corrupt_message);
    if (!from.bytes.empty()) std::memcpy(tensor.data_ptr(), from.bytes.data(), from.bytes.size());
    return tensor;
  }
  checkpoint_refuse("'" + name + "' is " + from.dtype + ", which this libtorch has not", ErrorCode::unsupported);
}

inline std::string described(const std::string& dtype, const std::vector<std::size_t>& shape) {
  std::string text = dtype + " [";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

// What a load is going to do, once all ranks know that they can. Tensors that nobody asked for are found.
class CheckpointReader {
 public:
  explicit CheckpointReader(const trainer::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  const trainer::StoredTensor* find(const std::string& key) {
    const trainer::StoredTensor* const tensor = checkpoint_.find(key);
    if (tensor != nullptr) used_.insert(tensor);
    return tensor;
  }
  // Into the memory that `to` has. Error(invalid_argument) when it does not fit.
  void plan_copy(const std::string& key, const trainer::StoredTensor& from, const torch::Tensor& to) {
    const std::string dtype = stored_dtype_of(key, to);
    const auto shape = stored_shape(to);
    if (from.dtype != dtype || from.shape != shape) {
      checkpoint_refuse("'" + key + "' is " + described(from.dtype, from.shape) + " in the file, but " +
                        described(dtype, shape) + " here");
    }
    plan([key, &from, to] { to.copy_(restored(key, from)); });
  }
  void plan(std::function<void()> change) { changes_.push_back(std::move(change)); }

  const trainer::Checkpoint& checkpoint() const { return checkpoint_; }
  bool used(const trainer::StoredTensor& tensor) const { return used_.count(&tensor) != 0; }

  void apply() {
    const torch::NoGradGuard guard;
    for (const auto& change : changes_) change();
  }

 private:
  const trainer::Checkpoint& checkpoint_;
  std::unordered_set<const trainer::StoredTensor*> used_{};
  std::vector<std::function<void()>> changes_{};
};

}  // namespace rondo::detail
