// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/task.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace rondo::torch_backend {
namespace {

// Where they begin if they lie one behind the other in one piece of memory; null: they do not, or are empty.
void* one_piece(const Tensors& tensors) {
  char *begin = nullptr, *end = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    char* const data = static_cast<char*>(tensor.data_ptr());
    if (!tensor.is_contiguous() || (end != nullptr && data != end)) return nullptr;
    if (begin == nullptr) begin = data;
    end = data + tensor.nbytes();
  }
  return begin;
}

}  // namespace

std::size_t parts_in(const at::Tensor& tensor, const Element& element) {
  return static_cast<std::size_t>(tensor.numel()) * element.parts;
}

bool is_alike(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& one) { return one.numel() == tensors.front().numel(); });
}

Counts counts_of(const Tensors& tensors, const Element& element) {
  Counts counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(parts_in(tensor, element));
  return counts;
}

void Task::see(const at::Tensor& tensor) {
  if (!has_tensors) device = tensor.device();
  has_tensors = true;
  if (tensor.device() == device) return;
  C10_THROW_ERROR(ValueError, c10::str("rondo: ", name, " of tensors on ", device, " and on ", tensor.device()));
}

void* Task::in_out(const at::Tensor& tensor) {
  void* const data = in(tensor);
  if (!tensor.is_contiguous()) after.push_back([tensor, flat = kept.back()] { at::Tensor(tensor).copy_(flat); });
  return data;
}

void* Task::in(const at::Tensor& tensor) {
  see(tensor);
  kept.push_back(tensor.contiguous());
  return kept.back().data_ptr();
}

void* Task::out(const at::Tensor& tensor) {
  see(tensor);
  kept.push_back(tensor.is_contiguous() ? tensor : at::empty(tensor.sizes(), tensor.options()));
  if (!tensor.is_contiguous()) after.push_back([tensor, flat = kept.back()] { at::Tensor(tensor).copy_(flat); });
  return kept.back().data_ptr();
}

void* Task::in(const Tensors& list) {
  for (const at::Tensor& one : list) see(one);
  kept.insert(kept.end(), list.begin(), list.end());
  if (void* const data = one_piece(list); data != nullptr || list.empty()) return data;
  Tensors flat;
  for (const at::Tensor& one : list) flat.push_back(one.reshape({-1}));
  kept.push_back(at::cat(flat));
  return kept.back().data_ptr();
}

void* Task::out(const Tensors& list) {
  for (const at::Tensor& one : list) see(one);
  kept.insert(kept.end(), list.begin(), list.end());
  if (void* const data = one_piece(list); data != nullptr || list.empty()) return data;
  std::int64_t total = 0;
  for (const at::Tensor& one : list) total += one.numel();
  kept.push_back(at::empty({total}, list.front().options().memory_format(at::MemoryFormat::Contiguous)));
  after.push_back([list, flat = kept.back()] {
    std::int64_t from = 0;
    for (const at::Tensor& one : list) {
      at::Tensor(one).copy_(flat.narrow(0, from, one.numel()).view(one.sizes()));
      from += one.numel();
    }
  });
  return kept.back().data_ptr();
}

void Task::finish() {
  for (const auto& step : std::exchange(after, {})) step();
}

}  // namespace rondo::torch_backend
