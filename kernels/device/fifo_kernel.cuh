// SPDX-License-Identifier: Apache-2.0
// The kernel of a protocol: messages, then operations in order, on links that outlive it. Dtype, operator, algorithm
// and root are values of the launch, so one kernel does everything.
#pragma once
#include <utility>

#include "kernels/device/ll.cuh"
#include "kernels/device/ll128.cuh"
#include "kernels/device/primitives.cuh"
#include "kernels/device/simple.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

template <class P>
RONDO_DEVICE void open_links(FifoBlock& block, const Launch& launch) {
  const DeviceTeam& team = *launch.team;
  const FifoShape& shape = team.layout.fifo[static_cast<int>(P::kProtocol)];
  const int channel = static_cast<int>(block_index());
  for (int peer = static_cast<int>(thread_index()); peer < team.world_size; peer += static_cast<int>(block_threads())) {
    Link& link = block.link[peer];
    link.mine = team.mine[peer] + team.layout.mailbox_offset(peer, channel, P::kProtocol);
    link.theirs = team.theirs[peer] + team.layout.mailbox_offset(team.rank, channel, P::kProtocol);
    link.sent = load<std::uint64_t>(&mailbox_at(link.mine).sent);
    link.received = load<std::uint64_t>(&mailbox_at(link.mine).received);
    link.freed = load<std::uint64_t>(&mailbox_at(link.mine).seen_freed);
    // Here all peers are looked at side by side; later a move that is alone waits for its look.
    if (link.sent - link.freed >= shape.slots) link.freed = load_credit(&mailbox_at(link.mine).freed);
    link.posted = link.received;
  }
  if (thread_index() != 0) return;
  block.patience = {&team, timer_ns(), launch.timeout_ns, {}, P::kProtocol, false};
  block.slots = shape.slots;
  block.slot_bytes = shape.slot_bytes;
  block.slice_bytes = static_cast<std::uint32_t>(slot_capacity(P::kProtocol, shape.slot_bytes)) & ~15u;
  block.rank = team.rank;
  block.world_size = team.world_size;
  block.lent = 0;
  block.turn = 0;
  block.failed = load_relaxed(&own_header(team).failed) != 0;  // another block may just be failing
}

// For the next kernel: where it goes on, or that it shall not.
RONDO_DEVICE void close_links(const FifoBlock& block, std::uint64_t latest) {
  const DeviceTeam& team = *block.patience.team;
  for (int peer = static_cast<int>(thread_index()); peer < team.world_size; peer += static_cast<int>(block_threads())) {
    const Link& link = block.link[peer];
    store<std::uint64_t>(&mailbox_at(link.mine).sent, link.sent);
    store<std::uint64_t>(&mailbox_at(link.mine).received, link.received);
    store<std::uint64_t>(&mailbox_at(link.mine).seen_freed, link.freed);
  }
  advance_sequence(own_header(team), latest);
  if (block.failed && thread_index() == 0) store_relaxed(&own_header(team).failed, 1);
}

template <class P>
RONDO_DEVICE void run_messages(FifoBlock& block, const Launch& launch) {
  const int channel = static_cast<int>(block_index());
  int active = 0;
  for (int i = 0; i < launch.messages; ++i) {
    const Message& message = launch.message[i];
    if (channel >= message.channels) continue;
    const Range share = share_of(message.bytes, 1, message.channels, channel);
    if (share.count == 0 && channel != 0) continue;
    if (thread_index() == 0) {
      std::byte* const data = share.count == 0 ? nullptr : message.data + share.offset;
      const bool refers = P::kRefers && message.sends && message.window >= 0 && share.count != 0;
      if (refers) {
        block.lent |= std::uint64_t{1} << message.peer;
        block.lending = {0, message.count, message.kind, 0};
      }
      block.active[active] = {.local = message.sends ? data : nullptr,
                              .store = message.sends ? nullptr : data,
                              .bytes = share.count,
                              .done = 0,
                              .signature = {0, message.count, message.kind, 0},
                              .key = message.key,
                              .offset = message.offset + share.offset,
                              .from = message.sends ? kNobody : message.peer,
                              .to = message.sends ? message.peer : kNobody,
                              .window = refers ? message.window : -1,
                              .may_refer = P::kRefers && !message.sends,
                              .complete = false,
                              .scale = false,
                              .finished = false,
                              .behind = 0};
    }
    ++active;
  }
  if (active == 0 || block.failed) return;
  order_moves(block, active);
  progress<P>(block, active);
  if (!P::kRefers || block.failed || !block_or(block.lent != 0)) return;
  if (block_or(!await_taken(block)) && thread_index() == 0) block.failed = true;
  block_sync();
}

// A function each: what one of them keeps in registers is no matter of the others.
template <class P, int kId>
RONDO_DEVICE_CALL void run_row(FifoBlock& block, const Launch& launch, const Operation& operation) {
  constexpr auto algorithm = kAlgorithms<DevicePrimitives<P>>[kId].run;
  DevicePrimitives<P> primitives(block, launch, operation);
  algorithm(primitives, block.share.work);
}
template <class P, int... kIds>
RONDO_DEVICE void dispatch(FifoBlock& block, const Launch& launch, const Operation& operation,
                           std::integer_sequence<int, kIds...>) {
  const auto run = [&]<int kId>(std::integral_constant<int, kId>) {
    if constexpr (runs_on_device(algorithm_row(kId))) {
      if (operation.algorithm == kId) run_row<P, kId>(block, launch, operation);
    }
  };
  (run(std::integral_constant<int, kIds>{}), ...);
}

// Device code reads no table of the host's: with an index that is not a constant, nvcc leaves a trap, without a word.
template <int... kIds>
RONDO_DEVICE Pattern pattern_of(int id, std::integer_sequence<int, kIds...>) {
  Pattern pattern{};
  const auto match = [&]<int kId>(std::integral_constant<int, kId>) {
    constexpr Pattern kPattern = algorithm_row(kId).pattern;
    if (id == kId) pattern = kPattern;
  };
  (match(std::integral_constant<int, kIds>{}), ...);
  return pattern;
}

// One collective. Blocks beyond its channels have nothing to do with it but count.
template <class P>
RONDO_DEVICE void run_operation(FifoBlock& block, const Launch& launch, const Operation& operation,
                                std::uint64_t sequence) {
  block_sync();  // the operation before is over for all threads
  const auto dtype = static_cast<DataType>(operation.dtype);
  constexpr auto kRows = std::make_integer_sequence<int, kAlgorithmCount>{};
  const Pattern pattern = pattern_of(operation.algorithm, kRows);
  DeviceSignature signature = operation.signature;
  if (signature.sequence == 0) signature.sequence = sequence;
  if (thread_index() == 0) {
    block.patience.operation = signature;
    block.key = key_of(signature);
    block.arithmetic = {dtype, static_cast<ReduceOp::Kind>(operation.op), operation.factor,
                        static_cast<double>(block.world_size)};
  }
  if (block_index() == 0 && thread_index() + 1 == block_threads()) write_history(own_header(*launch.team), signature);
  if (block_index() >= operation.channels) return;
  take_share(block, launch, operation, pattern, element_bytes(dtype));
  RONDO_STAMP(shared);
  const Work& work = block.share.work;

  DevicePrimitives<P> primitives(block, launch, operation);
  const bool pairs = operation.send_counts != kNoCounts && operation.recv_counts != kNoCounts;
  const bool scatters = operation.send_counts != kNoCounts && !pairs && sends_blocks(pattern);  // not a mere meeting
  const bool asks = (pairs || scatters) && block_index() == 0;
  const bool at_root = block.rank == operation.root;
  if (asks && (pairs || at_root)) {
    primitives.exchange_empty(true, [&](int peer) { return launch.counts[operation.send_counts + peer] == 0; });
  }
  if (work.size != 1) {
    dispatch<P>(block, launch, operation, kRows);
  } else if (pattern != Pattern::barrier) {
    run_alone(primitives, operation.reduces, work);
  }
  if (asks && pairs) {
    primitives.exchange_empty(false, [&](int peer) { return launch.counts[operation.recv_counts + peer] == 0; });
  } else if (asks && !at_root && launch.counts[operation.send_counts + block.rank] == 0) {
    primitives.exchange_empty(false, [&](int peer) { return peer == operation.root; });
  }
  RONDO_STAMP(finished);
}

template <class P>
RONDO_KERNEL fifo_kernel(RONDO_KERNEL_ARGUMENT Launch launch) {
  RONDO_SHARED(FifoBlock, block);
  RONDO_STAMP(begin);
  await_stream();
  RONDO_STAMP(awaited);
  const std::uint64_t latest = latest_sequence(*launch.team);
  const bool alone = enter_alone(launch, P::kProtocol, false);
  open_links<P>(block, launch);
  block_sync();
  if (launch.guarded != 0) {
    if (!alone) block.failed = true;
    block_sync();
  }
  RONDO_STAMP(opened);
  run_messages<P>(block, launch);
  const auto operations = static_cast<std::uint64_t>(launch.operations);
  for (std::uint64_t i = 0; i < operations; ++i) {
    run_operation<P>(block, launch, launch.operation[i], latest + i + 1);
  }
  block_sync();
  close_links(block, latest + operations);
  leave_alone(launch);
  RONDO_STAMP_END(*launch.team);
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
