// SPDX-License-Identifier: Apache-2.0
// What is wrong with a call by itself is refused before anything moves: ValueError or TypeError, in a sentence that
// names the call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <rondo/error.hpp>

namespace rondo::torch_backend {

using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;

void check_tensor(std::string_view name, const at::Tensor& tensor);  // dense, on a device that the library knows
void check_one(std::string_view name, const Tensors& tensors);
void check_same_type(std::string_view name, const at::Tensor& one, const at::Tensor& other);
// A tensor for each of `size` ranks, of the type of `other`.
void check_list(std::string_view name, const Tensors& list, std::size_t size, const at::Tensor& other);
// `part` is what a rank has of `whole`.
void check_whole(std::string_view name, const at::Tensor& whole, const at::Tensor& part, int size);
void check_pairs(std::string_view name, const Tensors& inputs, const Tensors& outputs);
void check_root(std::string_view name, std::int64_t root, int size);

// The list that only the root of a gather or a scatter gives: a tensor as long as `own` for each rank. Others: none.
Tensors list_of_root(std::string_view name, const Lists& lists, const at::Tensor& own, bool is_root, int size);

// What a failed call of `rank` throws, with the word that scripts look for in an error of a deadline.
std::exception_ptr exception_of(std::string_view name, int rank, const Error& error);

}  // namespace rondo::torch_backend
