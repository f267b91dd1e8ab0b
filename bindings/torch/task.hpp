// SPDX-License-Identifier: Apache-2.0
// A call of torch.distributed as calls of the library, and the memory that these work on.
#pragma once
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <rondo/verbs.hpp>

#include "bindings/torch/checks.hpp"
#include "bindings/torch/types.hpp"
#include "bindings/torch/work.hpp"

namespace rondo::torch_backend {

using Counts = std::vector<std::size_t>;

std::size_t parts_in(const at::Tensor& tensor, const Element& element);
Counts counts_of(const Tensors& tensors, const Element& element);
bool is_alike(const Tensors& tensors);  // of equal lengths

// A call, what it needs while it runs, and what is left to do when it has.
struct Task {
  c10d::OpType type;
  std::string name;
  std::chrono::milliseconds timeout;
  bool runs_async;
  Tensors inputs{}, outputs{};  // the caller's
  Tensors kept{};               // in between
  std::deque<Counts> counts{};
  std::vector<Call> calls{};
  std::vector<std::function<void()>> after{};
  bool is_message = false, takes_source = false, has_tensors = false;
  c10::Device device = c10::kCPU;  // of all its tensors

  // Error: the tensor is on another device than those before it.
  void see(const at::Tensor& tensor);

  // Memory in one piece that holds, and will hold, what the tensor does.
  void* in_out(const at::Tensor& tensor);
  void* in(const at::Tensor& tensor);
  void* out(const at::Tensor& tensor);
  // The same of a list, one behind the other.
  void* in(const Tensors& list);
  void* out(const Tensors& list);
  std::span<const std::size_t> keep(Counts given) { return counts.emplace_back(std::move(given)); }
  void finish();  // once
};

struct Started {
  std::shared_ptr<Task> task;
  c10::intrusive_ptr<RondoWork> work;
};

}  // namespace rondo::torch_backend
