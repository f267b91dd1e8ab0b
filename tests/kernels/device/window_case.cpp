// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device/window_case.hpp"

#include <fmt/format.h>

#include "kernels/device/kernels.hpp"

namespace rondo::test {

using kernels::Pattern;

namespace {

// A row of kAlgorithms that computes the same in canonical order, for FifoBuffers.
int canonical_row(Pattern pattern) {
  for (int id = 0; id < kernels::kAlgorithmCount; ++id) {
    const auto& row = kernels::algorithm_row(id);
    if (row.pattern == pattern && row.canonical_order) return id;
  }
  return kernels::kNoAlgorithm;
}

}  // namespace

bool WindowCase::has_window(int rank, bool sends) const {
  switch (windows) {
    case Windows::all:
      return true;
    case Windows::none:
      return false;
    case Windows::inputs:
      return sends;
    case Windows::outputs:
      return !sends;
    case Windows::some_inputs:
      return !sends || rank % 2 == 0;
    case Windows::some_outputs:
      return sends || rank % 2 == 0;
  }
  return false;
}

bool WindowCase::is_special() const { return device::window_sum_for(algorithm().pattern, call.dtype, call.op) >= 0; }

const void* WindowCase::special_kernel() const {
  return cuda::soft_kernels().window_sum[device::window_sum_for(algorithm().pattern, call.dtype, call.op)];
}

std::string WindowCase::describe() const {
  constexpr const char* kNames[] = {"all",    "no",     "all outputs, some inputs", "all inputs, some outputs",
                                    "inputs", "outputs"};
  return fmt::format("window {} ({}), windows: {}{}, staging {}, {} blocks", algorithm().name, call.describe(),
                     kNames[static_cast<int>(windows)], apart ? ", apart" : "", staging_bytes, blocks);
}

WindowCase sensible(WindowCase c) {
  const auto pattern = c.algorithm().pattern;
  c.call.row = canonical_row(pattern);
  if (!is_supported(c.call.dtype, c.call.op)) c.call.op = ReduceOp::sum;
  if (!c.algorithm().variable_counts) c.call.variable_counts = false;
  if (pattern == Pattern::all_to_all || pattern == Pattern::barrier) c.call.in_place = false;
  if (c.call.root >= c.call.ranks) c.call.root = c.call.ranks - 1;
  if (c.call.channels > c.blocks) c.call.channels = c.blocks;
  if (c.call.in_place && c.windows != Windows::all) c.windows = Windows::none;  // one memory, one window
  const std::size_t least = kernels::least_staging_bytes(c.call.ranks, c.blocks);
  if (c.staging_bytes < least) c.staging_bytes = least;
  return c;
}

DeviceWorld world_of(const WindowCase& c) {
  return DeviceWorld({.ranks = c.call.ranks,
                      .blocks = c.blocks,
                      .threads = c.call.threads,
                      .fifo = {},
                      .staging_bytes = c.staging_bytes});
}

void add_operation(const WindowCase& c, const FifoBuffers& buffers, DeviceWorld& world,
                   std::vector<device::Launch>& launches, int index) {
  constexpr std::uint64_t kOffset = 48, kApart = 256;
  static std::byte nothing[3 * kOffset + kApart * device::kMaxRanks];  // no rank's buffer, so a window is somewhere
  buffers.add_to(launches, index);
  for (int rank = 0; rank < c.call.ranks; ++rank) {
    device::Operation& operation = launches[static_cast<std::size_t>(rank)].operation[index];
    operation.algorithm = c.row;
    operation.signature.kind = static_cast<std::uint64_t>(c.row);
    const bool turned = c.apart && rank % 2 == 1;
    const int sent = 2 * index + (turned ? 2 : 1), kept = 2 * index + (turned ? 1 : 2);
    const std::uint64_t apart = c.apart ? static_cast<unsigned>(rank) * kApart : 0;
    const std::uint64_t sent_offset = kOffset + apart, kept_offset = 2 * kOffset + apart;
    if (c.has_window(rank, true)) {
      operation.send_window = sent;
      operation.send_offset = sent_offset;
    }
    if (c.has_window(rank, false)) {
      operation.recv_window = kept;
      operation.recv_offset = kept_offset;
    }
    for (int peer = 0; peer < c.call.ranks; ++peer) {
      auto& windows = world.team(peer).windows;
      const auto input = operation.input != nullptr ? operation.input : nothing + sent_offset;
      const auto output = operation.output != nullptr ? operation.output : nothing + kept_offset;
      windows[sent][rank] = const_cast<std::byte*>(input) - sent_offset;
      windows[kept][rank] = output - kept_offset;
    }
  }
}

std::vector<device::WindowSumLaunch> window_sum_launches(DeviceWorld& world,
                                                         const std::vector<device::Launch>& launches) {
  std::vector<device::WindowSumLaunch> sums;
  for (const device::Launch& launch : launches) {
    device::WindowSumLaunch sum = world.window_sum_launch(launch.team->rank);
    sum.timeout_ns = launch.timeout_ns;
    sum.operations = launch.operations;
    sum.guarded = launch.guarded;
    for (int i = 0; i < launch.operations; ++i) {
      const device::Operation& operation = launch.operation[i];
      const std::size_t bytes = operation.count * size_of(static_cast<DataType>(operation.dtype));
      sum.operation[i] = device::make_window_sum(operation, bytes, world.shape().ranks);
    }
    sums.push_back(sum);
  }
  return sums;
}

std::string run_case(const WindowCase& c, std::uint32_t seed, int launches, const simt::Options& options) {
  DeviceWorld world = world_of(c);
  FifoBuffers buffers(c.call);
  for (int i = 0; i < launches; ++i) {
    std::vector<device::Launch> all;
    for (int rank = 0; rank < c.call.ranks; ++rank) all.push_back(world.launch(rank));
    buffers.fill(seed + static_cast<std::uint32_t>(i));
    add_operation(c, buffers, world, all);
    const auto run = [&](const void* kernel, auto& each) {
      return c.call.on_threads ? world.run_on_threads(kernel, each) : world.run(kernel, each, options);
    };
    std::string report;
    if (c.is_special()) {
      auto sums = window_sum_launches(world, all);
      report = run(c.special_kernel(), sums);
    } else {
      report = run(cuda::soft_kernels().window, all);
    }
    const std::string wrong = report.empty() ? buffers.check() : report;
    if (!wrong.empty()) return fmt::format("{}: launch {}, seed {}: {}", c.describe(), i, seed, wrong);
  }
  return {};
}

}  // namespace rondo::test
