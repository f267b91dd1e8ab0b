// SPDX-License-Identifier: Apache-2.0
// What a collective means, as naively as it can be written.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "values.hpp"

namespace consumer {

inline std::size_t to_size(int value) { return static_cast<std::size_t>(value); }
inline std::size_t part(const Step& step, int from, int to) {
  return step.parts[to_size(from) * to_size(step.size) + to_size(to)];
}
inline std::size_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Elements that `rank` sends; 0 where its send buffer is not used.
inline std::size_t send_count(const Step& step, int rank) {
  using enum rondo::Collective;
  const std::size_t all = step.count * to_size(step.size);
  switch (step.collective) {
    case broadcast:
    case send:
      return rank == step.root ? step.count : 0;
    case reduce_scatter:
    case all_to_all:
      return all;
    case scatter:
      return rank == step.root ? all : 0;
    case all_gather_v:
    case gather_v:
      return step.parts[to_size(rank)];
    case scatter_v:
      return rank == step.root ? sum(step.parts) : 0;
    case all_to_all_v: {
      std::size_t total = 0;
      for (int to = 0; to < step.size; ++to) total += part(step, rank, to);
      return total;
    }
    case barrier:
      return 0;
    default:
      return step.count;
  }
}

template <class T>
T combine(T a, T b, rondo::ReduceOp::Kind op) {
  if constexpr (std::is_integral_v<T>) {
    if (op == rondo::ReduceOp::bit_and) return static_cast<T>(a & b);
    if (op == rondo::ReduceOp::bit_or) return static_cast<T>(a | b);
    if (op == rondo::ReduceOp::bit_xor) return static_cast<T>(a ^ b);
  }
  if (op == rondo::ReduceOp::product) return from_double<T>(to_double(a) * to_double(b));
  if (op == rondo::ReduceOp::min) return from_double<T>(std::min(to_double(a), to_double(b)));
  if (op == rondo::ReduceOp::max) return from_double<T>(std::max(to_double(a), to_double(b)));
  return from_double<T>(to_double(a) + to_double(b));
}

// Element by element over all ranks' inputs.
template <class T>
std::vector<T> reduced(const Step& step, const std::vector<std::vector<T>>& inputs) {
  const bool scaled = step.op.kind() == rondo::ReduceOp::premultiplied_sum;
  std::vector<T> result(inputs[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (int rank = 0; rank < step.size; ++rank) {
      T value = inputs[to_size(rank)][i];
      if (scaled) value = from_double<T>(to_double(value) * factor_of(rank, step.dtype));
      result[i] = rank == 0 ? value : combine(result[i], value, step.op.kind());
    }
    if (step.op.kind() == rondo::ReduceOp::average) result[i] = from_double<T>(to_double(result[i]) / step.size);
  }
  return result;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from, std::size_t begin, std::size_t count) {
  const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
  to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(count));
}

// What `me` must find in its receive buffer; empty where it is not used.
template <class T>
std::vector<T> expected(const Step& step, int me) {
  using enum rondo::Collective;
  std::vector<std::vector<T>> inputs;
  for (int rank = 0; rank < step.size; ++rank) inputs.push_back(input_of<T>(step, rank, send_count(step, rank)));
  const std::size_t mine = to_size(me), root = to_size(step.root), count = step.count;
  const bool at_root = me == step.root;
  std::vector<T> out;
  switch (step.collective) {
    case all_reduce:
      return reduced(step, inputs);
    case reduce:
      return at_root ? reduced(step, inputs) : out;
    case reduce_scatter:
      append(out, reduced(step, inputs), mine * count, count);
      return out;
    case broadcast:
      return inputs[root];
    case all_gather:
    case all_gather_v:
    case gather:
    case gather_v:
      if (step.collective == all_gather || step.collective == all_gather_v || at_root) {
        for (const auto& input : inputs) append(out, input, 0, input.size());
      }
      return out;
    case all_to_all:
      for (const auto& input : inputs) append(out, input, mine * count, count);
      return out;
    case scatter:
      append(out, inputs[root], mine * count, count);
      return out;
    case scatter_v:
      append(out, inputs[root], std::accumulate(step.parts.begin(), step.parts.begin() + me, std::size_t{0}),
             step.parts[mine]);
      return out;
    case all_to_all_v:
      for (int from = 0; from < step.size; ++from) {
        std::size_t begin = 0;
        for (int to = 0; to < me; ++to) begin += part(step, from, to);
        append(out, inputs[to_size(from)], begin, part(step, from, me));
      }
      return out;
    case send:
      return me == (step.root + step.shift) % step.size ? inputs[root] : out;
    case recv:
      return inputs[to_size((me + step.size - step.shift) % step.size)];
    case barrier:
      return out;
  }
  return out;
}

}  // namespace consumer
