// SPDX-License-Identifier: Apache-2.0
// The calls that add up: all_reduce, reduce and reduce_scatter in their forms.
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "bindings/torch/backend.hpp"
#include "bindings/torch/types.hpp"

namespace rondo::torch_backend {

RondoBackend::WorkPtr RondoBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
  check_one("all_reduce", tensors);
  c10d::AllreduceCoalescedOptions same;
  static_cast<c10d::AllreduceOptions&>(same) = opts;
  return allreduce_coalesced(tensors, same);
}

RondoBackend::WorkPtr RondoBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const std::string_view name = "all_reduce";
  if (tensors.empty()) C10_THROW_ERROR(ValueError, "rondo: all_reduce_coalesced of no tensors");
  Task t = task(tensors.size() == 1 ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED, name, opts.timeout,
                opts.asyncOp);
  t.inputs = t.outputs = tensors;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(name, tensor);
    const auto [element, op] = reduction_of(name, tensor.scalar_type(), opts.reduceOp);
    void* const data = t.in_out(tensor);
    t.calls.push_back({.collective = Collective::all_reduce,
                       .send = data,
                       .recv = data,
                       .count = parts_in(tensor, element),
                       .dtype = element.dtype,
                       .op = op});
  }
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  constexpr std::string_view kName = "sparse_all_reduce";
  if (tensors.size() != 1 || !tensors[0].is_sparse() || tensors[0].is_cuda() || opts.reduceOp != c10d::ReduceOp::SUM)
    C10_THROW_ERROR(ValueError, "rondo: a sparse all_reduce takes one sparse tensor of the CPU, and SUM");
  const at::Tensor mine = tensors[0].coalesce();
  at::Tensor lengths = at::zeros({getSize()}, at::kLong), length = at::full({1}, mine._nnz(), at::kLong);
  c10d::AllgatherOptions here;
  here.timeout = opts.timeout;
  here.asyncOp = false;
  all_gather_single(lengths, length, here);
  const auto gathered = [&](at::Tensor part) {
    Lists all(1);
    for (int rank = 0; rank < getSize(); ++rank) {
      auto sizes = part.sizes().vec();
      sizes[0] = lengths[rank].item<std::int64_t>();
      all[0].push_back(at::empty(sizes, part.options()));
    }
    Tensors one{part};
    allgather(all, one, here);
    return all[0];
  };
  const Tensors indices = gathered(mine.indices().t().contiguous()), values = gathered(mine.values().contiguous());
  at::Tensor sum;
  for (std::size_t rank = 0; rank < indices.size(); ++rank) {
    const at::Tensor theirs = at::sparse_coo_tensor(indices[rank].t(), values[rank], mine.sizes());
    sum = sum.defined() ? sum + theirs : theirs;
  }
  tensors[0].copy_(sum.coalesce());
  Task t = task(c10d::OpType::_ALLREDUCE_SPARSE, kName, opts.timeout, false);
  t.inputs = t.outputs = tensors;
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  constexpr std::string_view kName = "reduce";
  check_one(kName, tensors);
  check_root(kName, opts.rootRank, getSize());
  const auto [element, op] = reduction_of(kName, tensors[0].scalar_type(), opts.reduceOp);
  Task t = task(c10d::OpType::REDUCE, kName, opts.timeout, opts.asyncOp);
  t.inputs = t.outputs = tensors;
  const bool is_root = getRank() == opts.rootRank;
  void* const data = is_root ? t.in_out(tensors[0]) : t.in(tensors[0]);
  t.calls.push_back({.collective = Collective::reduce,
                     .send = data,
                     .recv = is_root ? data : nullptr,
                     .count = parts_in(tensors[0], element),
                     .dtype = element.dtype,
                     .op = op,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                                   const c10d::ReduceScatterOptions& opts) {
  constexpr std::string_view kName = "reduce_scatter";
  check_one(kName, outputs);
  if (inputs.size() != 1) C10_THROW_ERROR(ValueError, "rondo: reduce_scatter takes one list of inputs");
  const Tensors& list = inputs[0];
  check_list(kName, list, static_cast<std::size_t>(getSize()), outputs[0]);
  const at::Tensor& own = list[static_cast<std::size_t>(getRank())];
  if (own.numel() != outputs[0].numel())
    C10_THROW_ERROR(ValueError,
                    c10::str("rondo: reduce_scatter of ", own.numel(), " elements into ", outputs[0].numel()));
  const auto [element, op] = reduction_of(kName, outputs[0].scalar_type(), opts.reduceOp);
  Task t = task(c10d::OpType::REDUCE_SCATTER, kName, opts.timeout, opts.asyncOp);
  t.inputs = list;
  t.outputs = outputs;
  if (is_alike(list)) {
    t.calls.push_back({.collective = Collective::reduce_scatter,
                       .send = t.in(list),
                       .recv = t.out(outputs[0]),
                       .count = parts_in(outputs[0], element),
                       .dtype = element.dtype,
                       .op = op});
    return run(std::move(t));
  }
  for (int root = 0; root < getSize(); ++root) {
    const at::Tensor& block = list[static_cast<std::size_t>(root)];
    t.calls.push_back({.collective = Collective::reduce,
                       .send = t.in(block),
                       .recv = root == getRank() ? t.out(outputs[0]) : nullptr,
                       .count = parts_in(block, element),
                       .dtype = element.dtype,
                       .op = op,
                       .root = root});
  }
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                          const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_single_coalesced(outputs, inputs, opts);
}

RondoBackend::WorkPtr RondoBackend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::ReduceScatterOptions& opts) {
  constexpr std::string_view kName = "reduce_scatter";
  Task t = task(inputs.size() == 1 ? c10d::OpType::_REDUCE_SCATTER_BASE : c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  t.outputs = outputs;
  check_pairs(kName, inputs, outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(kName, inputs[i]);
    check_whole(kName, inputs[i], outputs[i], getSize());
    const auto [element, op] = reduction_of(kName, inputs[i].scalar_type(), opts.reduceOp);
    t.calls.push_back({.collective = Collective::reduce_scatter,
                       .send = t.in(inputs[i]),
                       .recv = t.out(outputs[i]),
                       .count = parts_in(outputs[i], element),
                       .dtype = element.dtype,
                       .op = op});
  }
  return run(std::move(t));
}

}  // namespace rondo::torch_backend
