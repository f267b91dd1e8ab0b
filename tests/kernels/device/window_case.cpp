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

std::string WindowCase::describe() const {
  constexpr const char* kNames[] = {"all",    "no",     "all outputs, some inputs", "all inputs, some outputs",
                                    "inputs", "outputs"};
  return fmt::format("window {} ({}), windows: {}, staging {}, {} blocks", algorithm().name, call.describe(),
                     kNames[static_cast<int>(windows)], staging_bytes, blocks);
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
  constexpr std::uint64_t kOffset = 48;
  static std::byte nothing[3 * kOffset];  // where a rank has no buffer, so that its window is somewhere
  buffers.add_to(launches, index);
  for (int rank = 0; rank < c.call.ranks; ++rank) {
    device::Operation& operation = launches[static_cast<std::size_t>(rank)].operation[index];
    operation.algorithm = c.row;
    operation.signature.kind = static_cast<std::uint64_t>(c.row);
    const int window = 2 * index + 1;
    if (c.has_window(rank, true)) {
      operation.send_window = window;
      operation.send_offset = kOffset;
    }
    if (c.has_window(rank, false)) {
      operation.recv_window = window + 1;
      operation.recv_offset = 2 * kOffset;
    }
    for (int peer = 0; peer < c.call.ranks; ++peer) {
      auto& windows = world.team(peer).windows;
      const auto input = operation.input != nullptr ? operation.input : nothing + kOffset;
      const auto output = operation.output != nullptr ? operation.output : nothing + 2 * kOffset;
      windows[window][rank] = const_cast<std::byte*>(input) - kOffset;
      windows[window + 1][rank] = output - 2 * kOffset;
    }
  }
}

std::string run_case(const WindowCase& c, std::uint32_t seed, int launches, const simt::Options& options) {
  const void* kernel = cuda::soft_kernels().window;
  DeviceWorld world = world_of(c);
  FifoBuffers buffers(c.call);
  for (int i = 0; i < launches; ++i) {
    std::vector<device::Launch> all;
    for (int rank = 0; rank < c.call.ranks; ++rank) all.push_back(world.launch(rank));
    buffers.fill(seed + static_cast<std::uint32_t>(i));
    add_operation(c, buffers, world, all);
    const std::string report = c.call.on_threads ? world.run_on_threads(kernel, all) : world.run(kernel, all, options);
    const std::string wrong = report.empty() ? buffers.check() : report;
    if (!wrong.empty()) return fmt::format("{}: launch {}, seed {}: {}", c.describe(), i, seed, wrong);
  }
  return {};
}

}  // namespace rondo::test
