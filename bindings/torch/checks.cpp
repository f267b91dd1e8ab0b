// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/checks.hpp"

#include <string>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include "bindings/torch/devices.hpp"

namespace rondo::torch_backend {

void check_tensor(std::string_view name, const at::Tensor& tensor) {
  if (!tensor.defined()) C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of an undefined tensor"));
  device_of(name, tensor.device());
  if (tensor.layout() != at::kStrided) {
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of a tensor that is not dense"));
  }
}

void check_one(std::string_view name, const Tensors& tensors) {
  if (tensors.size() != 1) {
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of ", tensors.size(),
                                         " tensors: it takes one on each rank"));
  }
  check_tensor(name, tensors.front());
}

void check_same_type(std::string_view name, const at::Tensor& one, const at::Tensor& other) {
  check_tensor(name, other);
  if (one.scalar_type() != other.scalar_type()) {
    C10_THROW_ERROR(TypeError, c10::str("rondo: ", std::string(name), " of tensors of ",
                                        c10::toString(one.scalar_type()), " and ", c10::toString(other.scalar_type())));
  }
}

void check_list(std::string_view name, const Tensors& list, std::size_t size, const at::Tensor& other) {
  if (list.size() != size) {
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " with a list of ", list.size(), " tensors for ",
                                         size, " ranks"));
  }
  for (const at::Tensor& one : list) check_same_type(name, other, one);
}

void check_whole(std::string_view name, const at::Tensor& whole, const at::Tensor& part, int size) {
  check_same_type(name, part, whole);
  if (whole.numel() == part.numel() * size) return;
  C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " with ", part.numel(), " elements of each of ",
                                       size, " ranks and a tensor of ", whole.numel(), " for all"));
}

void check_pairs(std::string_view name, const Tensors& inputs, const Tensors& outputs) {
  if (inputs.size() == outputs.size()) return;
  C10_THROW_ERROR(ValueError,
                  c10::str("rondo: ", std::string(name), " of ", inputs.size(), " tensors into ", outputs.size()));
}

void check_root(std::string_view name, std::int64_t root, int size) {
  if (root >= 0 && root < size) return;
  C10_THROW_ERROR(ValueError,
                  c10::str("rondo: ", std::string(name), " with root rank ", root, " in a group of ", size));
}

Tensors list_of_root(std::string_view name, const Lists& lists, const at::Tensor& own, bool is_root, int size) {
  if (!is_root) {
    if (lists.empty()) return {};
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), "'s list of tensors is for the root alone"));
  }
  if (lists.size() != 1)
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), "'s root takes one list of tensors"));
  check_list(name, lists[0], static_cast<std::size_t>(size), own);
  for (const at::Tensor& one : lists[0]) {
    if (one.numel() != own.numel())
      C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of a tensor of ", own.numel(),
                                           " elements, with one of ", one.numel(), " in the root's list"));
  }
  return lists[0];
}

std::exception_ptr exception_of(std::string_view name, int rank, const Error& error) {
  const bool late = error.error_code() == ErrorCode::timeout;
  const std::string sentence =
      c10::str("rondo: ", std::string(name), " on rank ", rank, late ? " met its timeout : " : ": ", error.what());
  if (error.error_code() == ErrorCode::invalid_argument)
    return std::make_exception_ptr(c10::ValueError({__func__, __FILE__, __LINE__}, sentence));
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, sentence));
}

}  // namespace rondo::torch_backend
