// SPDX-License-Identifier: Apache-2.0
// The calls that move: broadcast, all_gather, gather, scatter, all_to_all, messages and barrier.
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "bindings/torch/backend.hpp"
#include "bindings/torch/types.hpp"

namespace rondo::torch_backend {

RondoBackend::WorkPtr RondoBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  constexpr std::string_view kName = "broadcast";
  check_one(kName, tensors);
  check_root(kName, opts.rootRank, getSize());
  Task t = task(c10d::OpType::BROADCAST, kName, opts.timeout, opts.asyncOp);
  t.inputs = t.outputs = tensors;
  const Element element = element_of(tensors[0].scalar_type());
  void* const data = t.in_out(tensors[0]);
  t.calls.push_back({.collective = Collective::broadcast,
                     .send = data,
                     .recv = data,
                     .count = parts_in(tensors[0], element),
                     .dtype = element.dtype,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

// Every rank's indices and values to everybody; each adds them up in the order of the ranks.
RondoBackend::WorkPtr RondoBackend::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  check_one("all_gather", inputs);
  Lists by_tensor;  // as allgather_coalesced has them: by rank, then by tensor
  if (outputs.size() != 1) C10_THROW_ERROR(ValueError, "rondo: all_gather takes one list of outputs");
  for (const at::Tensor& one : outputs[0]) by_tensor.push_back({one});
  return allgather_coalesced(by_tensor, inputs, opts);
}

RondoBackend::WorkPtr RondoBackend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kName = "all_gather";
  Task t = task(inputs.size() == 1 ? c10d::OpType::ALLGATHER : c10d::OpType::ALLGATHER_COALESCED, kName, opts.timeout,
                opts.asyncOp);
  t.inputs = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(kName, inputs[i]);
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      if (of_rank.size() != inputs.size())
        C10_THROW_ERROR(ValueError, c10::str("rondo: all_gather of ", inputs.size(), " tensors into ", of_rank.size()));
      list.push_back(of_rank[i]);
    }
    check_list(kName, list, static_cast<std::size_t>(getSize()), inputs[i]);
    const at::Tensor& own = list[static_cast<std::size_t>(getRank())];
    if (own.numel() != inputs[i].numel()) {
      C10_THROW_ERROR(ValueError, c10::str("rondo: all_gather of ", inputs[i].numel(), " elements, and room for ",
                                           own.numel(), " of this rank"));
    }
    const Element element = element_of(inputs[i].scalar_type());
    const bool alike = is_alike(list);
    t.outputs.insert(t.outputs.end(), list.begin(), list.end());
    t.calls.push_back({.collective = alike ? Collective::all_gather : Collective::all_gather_v,
                       .send = t.in(inputs[i]),
                       .recv = t.out(list),
                       .count = parts_in(inputs[i], element),
                       .dtype = element.dtype});
    if (!alike) t.calls.back().recv_counts = t.keep(counts_of(list, element));
  }
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::all_gather_single(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return all_gather_single_coalesced(outputs, inputs, opts);
}

RondoBackend::WorkPtr RondoBackend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kName = "all_gather";
  Task t = task(inputs.size() == 1 ? c10d::OpType::_ALLGATHER_BASE : c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED,
                kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  t.outputs = outputs;
  check_pairs(kName, inputs, outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(kName, inputs[i]);
    check_whole(kName, outputs[i], inputs[i], getSize());
    const Element element = element_of(inputs[i].scalar_type());
    t.calls.push_back({.collective = Collective::all_gather,
                       .send = t.in(inputs[i]),
                       .recv = t.out(outputs[i]),
                       .count = parts_in(inputs[i], element),
                       .dtype = element.dtype});
  }
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  constexpr std::string_view kName = "gather";
  check_one(kName, inputs);
  check_root(kName, opts.rootRank, getSize());
  const bool is_root = getRank() == opts.rootRank;
  const Tensors list = list_of_root(kName, outputs, inputs[0], is_root, getSize());
  Task t = task(c10d::OpType::GATHER, kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  t.outputs = list;
  const Element element = element_of(inputs[0].scalar_type());
  t.calls.push_back({.collective = Collective::gather,
                     .send = t.in(inputs[0]),
                     .recv = t.out(list),
                     .count = parts_in(inputs[0], element),
                     .dtype = element.dtype,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                                  const c10d::GatherOptions& opts) {
  constexpr std::string_view kName = "gather";
  Tensors inputs{input};
  check_one(kName, inputs);
  check_root(kName, opts.rootRank, getSize());
  const bool is_root = getRank() == opts.rootRank;
  if (is_root) check_whole(kName, output, input, getSize());
  Task t = task(c10d::OpType::GATHER, kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  if (is_root) t.outputs = {output};
  const Element element = element_of(input.scalar_type());
  t.calls.push_back({.collective = Collective::gather,
                     .send = t.in(input),
                     .recv = is_root ? t.out(output) : nullptr,
                     .count = parts_in(input, element),
                     .dtype = element.dtype,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) {
  constexpr std::string_view kName = "scatter";
  check_one(kName, outputs);
  check_root(kName, opts.rootRank, getSize());
  const bool is_root = getRank() == opts.rootRank;
  const Tensors list = list_of_root(kName, inputs, outputs[0], is_root, getSize());
  Task t = task(c10d::OpType::SCATTER, kName, opts.timeout, opts.asyncOp);
  t.inputs = list;
  t.outputs = outputs;
  const Element element = element_of(outputs[0].scalar_type());
  t.calls.push_back({.collective = Collective::scatter,
                     .send = t.in(list),
                     .recv = t.out(outputs[0]),
                     .count = parts_in(outputs[0], element),
                     .dtype = element.dtype,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

// Blocks of different lengths are reduced to their ranks one by one.
RondoBackend::WorkPtr RondoBackend::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                                      std::vector<std::int64_t>& output_splits,
                                                      std::vector<std::int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& opts) {
  constexpr std::string_view kName = "all_to_all";
  check_tensor(kName, input);
  check_same_type(kName, input, output);
  const Element element = element_of(input.scalar_type());
  const auto counts = [&](const at::Tensor& tensor, const std::vector<std::int64_t>& splits) {
    const std::int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
    const std::int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
    if (splits.empty() && rows % getSize() != 0)
      C10_THROW_ERROR(ValueError, c10::str("rondo: all_to_all of ", rows, " rows by ", getSize(),
                                           " ranks: give the lengths of the parts"));
    Counts all;
    std::int64_t sum = 0;
    for (int rank = 0; rank < getSize(); ++rank) {
      const std::int64_t part = splits.empty() ? rows / getSize() : splits.at(static_cast<std::size_t>(rank));
      sum += part;
      all.push_back(static_cast<std::size_t>(part * row) * element.parts);
    }
    if (sum != rows || (!splits.empty() && splits.size() != static_cast<std::size_t>(getSize())))
      C10_THROW_ERROR(ValueError, c10::str("rondo: all_to_all of ", rows, " rows in parts of ", sum, " rows for ",
                                           splits.size(), " ranks of ", getSize()));
    return all;
  };
  Task t = task(c10d::OpType::ALLTOALL_BASE, kName, opts.timeout, opts.asyncOp);
  t.inputs = {input};
  t.outputs = {output};
  if (input_splits.empty() && output_splits.empty()) {
    const Counts all = counts(input, {});
    counts(output, {});
    t.calls.push_back({.collective = Collective::all_to_all,
                       .send = t.in(input),
                       .recv = t.out(output),
                       .count = all.front(),
                       .dtype = element.dtype});
    return run(std::move(t));
  }
  t.calls.push_back({.collective = Collective::all_to_all_v,
                     .send = t.in(input),
                     .recv = t.out(output),
                     .dtype = element.dtype,
                     .send_counts = t.keep(counts(input, input_splits)),
                     .recv_counts = t.keep(counts(output, output_splits))});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  constexpr std::string_view kName = "all_to_all";
  if (inputs.empty()) C10_THROW_ERROR(ValueError, "rondo: all_to_all of no tensors");
  check_list(kName, inputs, static_cast<std::size_t>(getSize()), inputs.front());
  check_list(kName, outputs, static_cast<std::size_t>(getSize()), inputs.front());
  const Element element = element_of(inputs.front().scalar_type());
  Task t = task(c10d::OpType::ALLTOALL, kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  t.outputs = outputs;
  t.calls.push_back({.collective = Collective::all_to_all_v,
                     .send = t.in(inputs),
                     .recv = t.out(outputs),
                     .dtype = element.dtype,
                     .send_counts = t.keep(counts_of(inputs, element)),
                     .recv_counts = t.keep(counts_of(outputs, element))});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::barrier(const c10d::BarrierOptions& opts) {
  synchronize_device();
  Task t = task(c10d::OpType::BARRIER, "barrier", opts.timeout, opts.asyncOp);
  t.calls.push_back({.collective = Collective::barrier});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::message(std::string_view name, c10d::OpType type, Tensors& tensors,
                                            Collective collective, int peer, int tag) {
  check_one(name, tensors);
  if (!tensors[0].is_contiguous())
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of a tensor that is not contiguous"));
  const Element element = element_of(tensors[0].scalar_type());
  Task t = task(type, name, c10d::kUnsetTimeout, true);
  t.inputs = t.outputs = tensors;
  t.see(tensors[0]);
  t.kept = tensors;
  Call call{.collective = collective, .count = parts_in(tensors[0], element), .dtype = element.dtype, .root = peer};
  call.tag = tag;
  (collective == Collective::send ? const_cast<void*&>(call.send) : call.recv) = tensors[0].data_ptr();
  t.is_message = true;
  t.takes_source = collective == Collective::recv;
  t.calls.push_back(call);
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::send(Tensors& tensors, int peer, int tag) {
  return message("send", c10d::OpType::SEND, tensors, Collective::send, peer, tag);
}
RondoBackend::WorkPtr RondoBackend::recv(Tensors& tensors, int peer, int tag) {
  return message("recv", c10d::OpType::RECV, tensors, Collective::recv, peer, tag);
}
RondoBackend::WorkPtr RondoBackend::recvAnysource(Tensors& tensors, int tag) {
  return message("recvAnySource", c10d::OpType::RECVANYSOURCE, tensors, Collective::recv, kAnySource, tag);
}

}  // namespace rondo::torch_backend
