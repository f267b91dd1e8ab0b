// SPDX-License-Identifier: Apache-2.0
// What host code and the push kernels share: the argument of a launch, and how an operation becomes a part of it. All
// that the kernels need on their way lies in the argument; they read `team` only when they have waited for long.
#pragma once
#include <rondo/dtype.hpp>
#include <rondo/reduce_op.hpp>

#include "kernels/algorithms/table.hpp"
#include "kernels/device/layout.hpp"

namespace rondo::kernels::device {

// The kernels, by what they do with what has come.
enum class PushKernel : std::uint8_t { sum_f32, sum_f16, sum_bf16, copy };
inline constexpr int kPushKernelCount = 4;

enum class PushFrom : std::uint8_t { all, root };  // who sends data; the others send an empty line

struct PushOperation {
  const std::byte* input;
  std::byte* output;
  std::uint32_t bytes;                     // that a rank has for each other
  std::uint32_t send_stride, recv_stride;  // between what is for, or from, one rank and the next; 0: the same for all
  std::uint32_t lines;                     // of each block but the last ones
  std::uint64_t hash;                      // of the signature, without the sequence
  DeviceSignature signature;               // sequence 0: the kernel counts
  std::int32_t root;
  PushFrom from;
  std::uint8_t channels;  // the first blocks share it, so many on all ranks; further blocks of the launch skip it
};

struct PushLaunch {
  const DeviceTeam* team;
  std::uint64_t timeout_ns;  // from the first time a thread looks at the clock
  RegionHeader* header;      // own
  std::int32_t rank, ranks, operations;
  std::uint64_t guarded = 0;    // as Launch's
  std::byte* inbox[kMaxRanks];  // of every rank, as mapped here
  PushOperation operation[kMaxOperations];
};
static_assert(sizeof(PushLaunch) <= 4096);

constexpr std::size_t push_capacity(int blocks) { return std::size_t{8} * kPushLines * static_cast<unsigned>(blocks); }

// Which kernel runs it; -1: none.
constexpr int push_kernel_for(Pattern pattern, DataType dtype, ReduceOp::Kind op) {
  constexpr auto index = [](PushKernel kernel) { return static_cast<int>(kernel); };
  switch (pattern) {
    case Pattern::broadcast:
    case Pattern::all_gather:
    case Pattern::barrier:
      return index(PushKernel::copy);
    case Pattern::all_reduce:
    case Pattern::reduce_scatter:
      if (op != ReduceOp::sum) return -1;
      if (dtype == DataType::f32) return index(PushKernel::sum_f32);
      if (dtype == DataType::f16) return index(PushKernel::sum_f16);
      return dtype == DataType::bf16 ? index(PushKernel::sum_bf16) : -1;
    case Pattern::reduce:
    case Pattern::all_to_all:
    case Pattern::gather:
    case Pattern::scatter:
      break;
  }
  return -1;
}

// Without the sequence.
constexpr std::uint64_t hash_of(const DeviceSignature& signature) {
  std::uint64_t hash = 1;
  for (const std::uint64_t word : {signature.count, signature.kind, signature.shape}) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

// `bytes` of one rank for another, at most push_capacity() of `channels` blocks.
constexpr PushOperation make_push(Pattern pattern, const Operation& of, std::size_t bytes) {
  const auto narrow = static_cast<std::uint32_t>(pattern == Pattern::barrier ? 0 : bytes);
  const std::uint32_t lines = (narrow + 7) / 8;
  return {.input = of.input,
          .output = of.output,
          .bytes = narrow,
          .send_stride = pattern == Pattern::reduce_scatter ? narrow : 0,
          .recv_stride = pattern == Pattern::all_gather ? narrow : 0,
          .lines = (lines + of.channels - 1) / of.channels,
          .hash = hash_of(of.signature),
          .signature = of.signature,
          .root = of.root,
          .from = pattern == Pattern::broadcast ? PushFrom::root : PushFrom::all,
          .channels = of.channels};
}

}  // namespace rondo::kernels::device
