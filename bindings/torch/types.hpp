// SPDX-License-Identifier: Apache-2.0
// PyTorch's element types and operators in the library's words.
#pragma once
#include <string_view>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <rondo/dtype.hpp>
#include <rondo/reduce_op.hpp>

namespace rondo::torch_backend {

struct Element {
  DataType dtype = DataType::u8;
  std::size_t parts = 1;  // of that type: two of a complex number, the bytes of a type that the library does not know
};

Element element_of(at::ScalarType type);  // to move; every type has bytes

struct Reduction {
  Element element;
  ReduceOp op = ReduceOp::sum;
};

// TypeError for a type that the operator, or the library, cannot add up; `call` is named.
Reduction reduction_of(std::string_view call, at::ScalarType type, const c10d::ReduceOp& op);

}  // namespace rondo::torch_backend
