// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device/push_case.hpp"

#include <fmt/format.h>

#include "kernels/device/kernels.hpp"

namespace rondo::test {

using kernels::Pattern;

const void* PushCase::kernel() const {
  return cuda::soft_kernels().push[device::push_kernel_for(pattern, call.dtype, call.op)];
}

std::string PushCase::describe() const { return fmt::format("push ({}), {} blocks", call.describe(), blocks); }

PushCase sensible(PushCase c) {
  FifoCase& call = c.call;
  for (int id = 0; id < kernels::kAlgorithmCount; ++id) {  // that computes the same in canonical order
    const auto& row = kernels::algorithm_row(id);
    if (row.pattern == c.pattern && row.canonical_order) call.row = id;
  }
  call.variable_counts = false;
  if (kernels::row_of(c.pattern).reduces) {
    constexpr DataType kSummed[] = {DataType::f32, DataType::f16, DataType::bf16};
    call.op = ReduceOp::sum;
    if (device::push_kernel_for(c.pattern, call.dtype, call.op) < 0)
      call.dtype = kSummed[static_cast<int>(call.dtype) % 3];
  }
  if (c.pattern == Pattern::barrier) call.in_place = false;
  if (call.root >= call.ranks) call.root = call.ranks - 1;
  if (call.channels > c.blocks) call.channels = c.blocks;
  call.count = std::min(call.count, device::push_capacity(call.channels) / size_of(call.dtype));
  return c;
}

DeviceWorld world_of(const PushCase& c) {
  return DeviceWorld({.ranks = c.call.ranks, .blocks = c.blocks, .threads = c.call.threads, .fifo = {}, .push = true});
}

std::vector<device::PushLaunch> push_launches(DeviceWorld& world) {
  std::vector<device::PushLaunch> launches;
  for (int rank = 0; rank < world.shape().ranks; ++rank) launches.push_back(world.push_launch(rank));
  return launches;
}

void add_operation(const PushCase& c, const FifoBuffers& buffers, std::vector<device::PushLaunch>& launches,
                   int index) {
  std::vector<device::Launch> plain(launches.size());
  buffers.add_to(plain);
  for (std::size_t rank = 0; rank < launches.size(); ++rank) {
    launches[rank].operations = index + 1;
    launches[rank].operation[index] =
        device::make_push(c.pattern, plain[rank].operation[0], c.call.count * size_of(c.call.dtype));
  }
}

std::string run_case(const PushCase& c, std::uint32_t seed, int launches, const simt::Options& options) {
  DeviceWorld world = world_of(c);
  FifoBuffers buffers(c.call);
  for (int i = 0; i < launches; ++i) {
    auto all = push_launches(world);
    buffers.fill(seed + static_cast<std::uint32_t>(i));
    add_operation(c, buffers, all);
    const std::string report =
        c.call.on_threads ? world.run_on_threads(c.kernel(), all) : world.run(c.kernel(), all, options);
    const std::string wrong = report.empty() ? buffers.check() : report;
    if (!wrong.empty()) return fmt::format("{}: launch {}, seed {}: {}", c.describe(), i, seed, wrong);
  }
  return {};
}

}  // namespace rondo::test
