// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device/fifo_case.hpp"

#include <fmt/format.h>

#include <cstring>

#include "kernels/average.hpp"
#include "kernels/convert.hpp"
#include "kernels/device/kernels.hpp"
#include "kernels/device/runs_on_device.hpp"
#include "kernels/reduce.hpp"

namespace rondo::test {

using kernels::Pattern;

namespace {

constexpr std::string_view kProtocolNames[] = {"simple", "ll", "ll128"};

bool is_float(DataType dtype) {
  return dtype == DataType::f16 || dtype == DataType::bf16 || dtype == DataType::f32 || dtype == DataType::f64 ||
         dtype == DataType::f8e4m3 || dtype == DataType::f8e5m2;
}

void put_float(DataType dtype, std::byte* at, float value) {
  std::uint32_t bits = 0;
  switch (dtype) {
    case DataType::f64: {
      const double wide = value;
      std::memcpy(at, &wide, 8);
      return;
    }
    case DataType::f32:
      std::memcpy(at, &value, 4);
      return;
    case DataType::f16:
      bits = kernels::Half::narrow(value);
      break;
    case DataType::bf16:
      bits = kernels::Bfloat::narrow(value);
      break;
    case DataType::f8e4m3:
      bits = kernels::E4m3::narrow(value);
      break;
    default:
      bits = kernels::E5m2::narrow(value);
  }
  std::memcpy(at, &bits, size_of(dtype));
}

}  // namespace

std::string FifoCase::describe() const {
  const auto& algorithm = kernels::algorithm_row(row);
  return fmt::format("{} {} {} {} {} ranks {} count {} misaligned {}{} channels {} root {}{} slots {}x{} threads {}{}",
                     kProtocolNames[static_cast<int>(protocol)], kernels::row_of(algorithm.pattern).name,
                     algorithm.name, name_of(dtype), name_of(op), ranks, count, misalignment,
                     in_place ? " in place" : "", channels, root, variable_counts ? " variable" : "", fifo.slots,
                     fifo.slot_bytes, threads, on_threads ? " on threads" : "");
}

bool FifoCase::makes_sense() const {
  const auto& algorithm = kernels::algorithm_row(row);
  const auto& pattern = kernels::row_of(algorithm.pattern);
  if (!device::runs_on_device(algorithm) || root >= ranks) return false;
  if (pattern.reduces && !is_supported(dtype, op)) return false;
  if (pattern.reduces && kernels::averages_widely(dtype, op) && !algorithm.canonical_order)
    return false;  // never chosen
  if (variable_counts && !algorithm.variable_counts) return false;
  return !in_place || (!pattern.has_block_per_pair() && pattern.recv != Extent::none);
}

FifoBuffers::FifoBuffers(const FifoCase& c)
    : case_(c),
      pattern_(kernels::algorithm_row(c.row).pattern),
      element_(size_of(c.dtype)),
      ranks_(static_cast<std::size_t>(c.ranks)) {
  for (int rank = 0; rank < c.ranks; ++rank) allocate(rank);
}

// Uneven, some of them 0.
std::size_t FifoBuffers::block_count(int from, int to) const {
  if (!case_.variable_counts) return case_.count;
  const auto& pattern = kernels::row_of(pattern_);
  const int of = pattern.has_block_per_pair() ? 3 * from + to : pattern.sends_blocks() ? to : from;
  return case_.count * static_cast<std::size_t>(of % 3) + static_cast<std::size_t>(of % 2);
}

std::size_t FifoBuffers::block_offset(int rank, int of, bool sends) const {
  std::size_t offset = 0;
  for (int other = 0; other < of; ++other) offset += sends ? block_count(rank, other) : block_count(other, rank);
  return offset;
}

std::size_t FifoBuffers::blocks(int rank, bool sends) const { return block_offset(rank, case_.ranks, sends); }

void FifoBuffers::allocate(int rank) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  const auto& pattern = kernels::row_of(pattern_);
  const bool sends = pattern.sends_blocks(), receives = pattern.receives_blocks();
  std::size_t in = case_.count, out = case_.count;
  if (sends) in = blocks(rank, true);
  if (receives) out = blocks(rank, false);
  if (receives && !sends) in = block_count(rank, rank);
  if (sends && !receives) out = block_count(rank, rank);
  if (pattern.send == Extent::none) in = 0;
  if (pattern.recv == Extent::none) out = 0;
  r.input_bytes = in * element_;
  r.output_bytes = out * element_;
  const bool at_root = rank == case_.root;
  if (pattern.send_at_root && !at_root) r.input_bytes = 0;
  r.has_output = (!pattern.recv_at_root || at_root) && pattern.recv != Extent::none;
  if (!r.has_output) r.output_bytes = 0;
  r.send = GuardedBuffer(r.input_bytes, case_.misalignment * element_);
  r.recv = GuardedBuffer(r.output_bytes, (case_.misalignment / 2) * element_);
  r.input = r.send.data();
  r.output = r.recv.data();
  if (!case_.in_place || r.input_bytes == 0 || r.output_bytes == 0) return;
  if (receives) {
    r.input = r.output + block_offset(rank, rank, false) * element_;
  } else {
    r.output = r.input + (sends ? block_offset(rank, rank, true) * element_ : 0);
  }
}

void FifoBuffers::fill_values(Rank& rank, std::mt19937& random) {
  const bool reduces = kernels::row_of(pattern_).reduces;
  const bool canonical = kernels::algorithm_row(case_.row).canonical_order;
  const auto index = static_cast<std::size_t>(&rank - ranks_.data());
  rank.given.resize(rank.input_bytes);
  for (std::size_t i = 0; i < rank.input_bytes; i += element_) {
    std::byte* at = rank.given.data() + i;
    const auto word = random();
    if (!reduces || !is_float(case_.dtype)) {
      const std::uint64_t bits = word | static_cast<std::uint64_t>(random()) << 32;
      std::memcpy(at, &bits, element_);
    } else if (canonical) {
      put_float(case_.dtype, at, static_cast<float>(word % 4001) / 1000.0F - 2.0F);
    } else if (case_.op == ReduceOp::product) {  // powers of two, 16 at most
      put_float(case_.dtype, at, index < 4 && word % 2 != 0 ? 2.0F : 1.0F);
    } else {  // sums of 8 at most, exact in the smallest type
      put_float(case_.dtype, at, index < 4 && word % 2 != 0 ? 1.0F : 0.0F);
    }
  }
  rank.factor = case_.op == ReduceOp::premultiplied_sum ? (index % 2 == 0 ? 2.0 : 1.0) : 1.0;
  if (canonical && index % 3 == 2) rank.factor *= 0.3;  // rounds
}

void FifoBuffers::fill(std::uint32_t seed) {
  std::mt19937 random(seed);
  for (Rank& rank : ranks_) {
    fill_values(rank, random);
    rank.send.poison();
    rank.recv.poison();
    if (!rank.given.empty()) std::memcpy(rank.input, rank.given.data(), rank.given.size());
    rank.expected.assign(rank.output_bytes, GuardedBuffer::kPoison);
  }
  if (kernels::row_of(pattern_).recv == Extent::none) return;
  if (kernels::row_of(pattern_).reduces) {
    expect_reduced();
  } else {
    expect_moved();
  }
}

void FifoBuffers::expect_reduced() {
  const std::size_t total = ranks_[0].input_bytes / element_;
  std::vector<std::vector<std::byte>> touched;
  std::vector<const void*> inputs;
  for (const Rank& rank : ranks_) {
    touched.push_back(rank.given);
    if (case_.op == ReduceOp::premultiplied_sum) {
      kernels::find_multiply(case_.dtype)(touched.back().data(), rank.given.data(), total, rank.factor);
    }
  }
  for (const auto& values : touched) inputs.push_back(values.data());
  std::vector<std::byte> result(total * element_);
  kernels::fold_into(kernels::find_fold(case_.dtype, case_.op), result.data(), inputs.data(), case_.ranks, total,
                     case_.ranks);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].output_bytes == 0) continue;
    const std::size_t first = kernels::row_of(pattern_).sends_blocks() ? rank * case_.count * element_ : 0;
    std::memcpy(ranks_[rank].expected.data(), result.data() + first, ranks_[rank].output_bytes);
  }
}

void FifoBuffers::copy_block(int from, std::size_t from_offset, int to, std::size_t to_offset, std::size_t count) {
  if (count == 0) return;
  std::memcpy(ranks_[static_cast<std::size_t>(to)].expected.data() + to_offset * element_,
              ranks_[static_cast<std::size_t>(from)].given.data() + from_offset * element_, count * element_);
}

void FifoBuffers::expect_moved() {
  const auto& pattern = kernels::row_of(pattern_);
  for (int to = 0; to < case_.ranks; ++to) {
    if (pattern.send_at_root && pattern.sends_blocks()) {
      copy_block(case_.root, block_offset(case_.root, to, true), to, 0, block_count(case_.root, to));
    } else if (pattern.send_at_root) {
      copy_block(case_.root, 0, to, 0, case_.count);
    }
    if (!pattern.receives_blocks() || (pattern.recv_at_root && to != case_.root)) continue;
    for (int from = 0; from < case_.ranks; ++from) {
      const std::size_t offset = pattern.sends_blocks() ? block_offset(from, to, true) : 0;
      copy_block(from, offset, to, block_offset(to, from, false), block_count(from, to));
    }
  }
}

void FifoBuffers::add_to(std::vector<device::Launch>& launches, int index) const {
  for (int rank = 0; rank < case_.ranks; ++rank) {
    device::Launch& launch = launches[static_cast<std::size_t>(rank)];
    const Rank& r = ranks_[static_cast<std::size_t>(rank)];
    device::Operation& operation = launch.operation[index];
    launch.operations = index + 1;
    operation = {.input = r.input_bytes == 0 ? nullptr : r.input,
                 .output = r.output_bytes == 0 ? nullptr : r.output,
                 .count = case_.count,
                 .factor = r.factor,
                 .signature = {0, case_.count, static_cast<std::uint64_t>(case_.row), 0},
                 .algorithm = case_.row,
                 .root = case_.root,
                 .send_counts = device::kNoCounts,
                 .recv_counts = device::kNoCounts,
                 .dtype = static_cast<std::uint8_t>(case_.dtype),
                 .op = static_cast<std::uint8_t>(case_.op),
                 .reduces = kernels::row_of(pattern_).reduces,
                 .channels = static_cast<std::uint8_t>(case_.channels),
                 .send_window = -1,
                 .recv_window = -1,
                 .send_offset = 0,
                 .recv_offset = 0};
    if (!case_.variable_counts) continue;
    operation.send_counts = kernels::row_of(pattern_).sends_blocks() ? 0 : device::kNoCounts;
    operation.recv_counts = kernels::row_of(pattern_).receives_blocks() ? device::kMaxRanks : device::kNoCounts;
    for (int peer = 0; peer < case_.ranks; ++peer) {
      launch.counts[peer] = block_count(rank, peer);
      launch.counts[device::kMaxRanks + peer] = block_count(peer, rank);
    }
  }
}

std::string FifoBuffers::check() const {
  for (int rank = 0; rank < case_.ranks; ++rank) {
    const std::string wrong = check(rank);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string FifoBuffers::check(int rank) const {
  const Rank& r = ranks_[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < r.output_bytes; ++i) {
    if (r.output[i] == r.expected[i]) continue;
    return fmt::format("rank {}: byte {} of {} is {:#04x}, not {:#04x}", rank, i, r.output_bytes,
                       static_cast<int>(r.output[i]), static_cast<int>(r.expected[i]));
  }
  if (!case_.in_place && !r.given.empty() && std::memcmp(r.input, r.given.data(), r.input_bytes) != 0) {
    return fmt::format("rank {}: the input has changed", rank);
  }
  if (!r.send.guards_are_intact() || !r.recv.guards_are_intact()) {
    return fmt::format("rank {}: something was written outside of the buffers", rank);
  }
  return {};
}

void FifoBuffers::spoil(int rank) {
  ranks_[static_cast<std::size_t>(rank)].send.poison();
  ranks_[static_cast<std::size_t>(rank)].recv.poison();
}

std::string run_case(const FifoCase& c, std::uint32_t seed, int launches) {
  DeviceWorld world({.ranks = c.ranks, .blocks = c.channels, .threads = c.threads, .fifo = c.fifo});
  FifoBuffers buffers(c);
  const void* kernel = cuda::soft_kernels().fifo[static_cast<int>(c.protocol)];
  for (int i = 0; i < launches; ++i) {
    std::vector<device::Launch> all;
    for (int rank = 0; rank < c.ranks; ++rank) all.push_back(world.launch(rank));
    buffers.fill(seed + static_cast<std::uint32_t>(i));
    buffers.add_to(all);
    const std::string report = c.on_threads ? world.run_on_threads(kernel, all) : world.run(kernel, all);
    const std::string wrong = report.empty() ? buffers.check() : report;
    if (!wrong.empty()) return fmt::format("{}: launch {}, seed {}: {}", c.describe(), i, seed, wrong);
  }
  return {};
}

}  // namespace rondo::test
