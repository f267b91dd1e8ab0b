// SPDX-License-Identifier: Apache-2.0
// The window kernel: any row of kWindowAlgorithms, in place in the peers' memory. A block meets the same-numbered
// blocks of its peers, moves its share of the message, and meets them again where somebody's memory must not change
// before. Where a buffer lies in no window, its rank passes it through its staging area, and all ranks go in rounds.
#pragma once
#include "kernels/device/window_plan.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

// Fold: what the kernel can do. A sum reads everybody's, and cuts nothing into blocks.
template <class Fold>
class WindowOperation {
 public:
  RONDO_DEVICE explicit WindowOperation(WindowBlock& block)
      : block_(block), plan_(block.plan), operation_(block.operation) {}

  // By all threads; the plan is made. meet_all: the first meeting, begin() or what does the same. False: drain.
  template <class F>
  RONDO_DEVICE bool run(F&& meet_all) const {
    unsigned round = 0;
    do {
      RONDO_NO_UNROLL
      for (int phase = 0; phase < 3; ++phase) {  // copy in, move, copy out: one place in the code for what moves bytes
        if (phase == 1 && !(round == 0 ? meet_all() : begin_again(round))) return false;
        if (phase == 2 && !plan_.ends_together) break;
        if (phase == 2 && !end(round)) return false;
        run_list(list_moves(phase, round), phase == 1 && round == 0);
      }
    } while (++round < plan_.rounds);
    return true;
  }

  RONDO_DEVICE bool begin() const {
    const Arrival own{.epoch = block_.epoch + 1,
                      .key = key_of(block_.patience.operation),
                      .send_offset = operation_.send_offset,
                      .recv_offset = operation_.recv_offset,
                      .send_window = input_is_shared() ? operation_.send_window : -1,
                      .recv_window = operation_.recv_window,
                      .factor = operation_.factor,
                      .rounds = rounds()};
    const auto offset_for = [&](int peer) {  // of all_to_all: nobody else knows where the peer's block begins
      return plan_.reads == Reads::each ? block_.sends[peer].start * plan_.element : std::uint64_t{0};
    };
    if (!meet_first(block_, own, stages_input(), offset_for)) return false;
    RONDO_STAMP(met);
    return true;
  }
  RONDO_DEVICE std::uint64_t rounds() const { return rounds_of(block_, whole_share()); }

 private:
  // ---- who reads and writes whose memory ----

  RONDO_DEVICE bool is_in_blocks() const { return Fold::kAny && plan_.cut == Cut::blocks; }
  RONDO_DEVICE bool is_read(int rank) const {  // by others
    return !Fold::kAny || plan_.reads == Reads::fold || plan_.reads == Reads::each ||
           (plan_.reads == Reads::root && rank == plan_.root);
  }
  RONDO_DEVICE bool is_written(int rank) const {
    return plan_.writes == Writes::all || (plan_.writes == Writes::root && rank == plan_.root);
  }
  // In place, one shot would overwrite what others still read.
  RONDO_DEVICE bool input_is_shared() const {
    return operation_.send_window >= 0 && !(plan_.cut == Cut::whole && operation_.input == operation_.output);
  }
  RONDO_DEVICE bool stages_input() const { return plan_.ranks > 1 && is_read(plan_.rank) && !input_is_shared(); }
  RONDO_DEVICE bool stages_output() const { return is_written(plan_.rank) && operation_.recv_window < 0; }

  // ---- meeting ----

  // Of the meeting that begins a round. How many there are in a round is known after the first.
  RONDO_DEVICE std::uint64_t epoch(unsigned round) const {
    return block_.epoch + 1 + (round == 0 ? 0 : round * (plan_.ends_together ? 2u : 1u));
  }

  // Inputs may have been staged.
  RONDO_DEVICE bool begin_again(unsigned round) const {
    return meet_again(block_, epoch(round), Since::wrote, Since::wrote);
  }
  // What this rank says and what it looks for are two questions: of both wrong alike ThreadSanitizer sees nothing.
  RONDO_DEVICE bool end(unsigned round) const {
    return meet_again(block_, epoch(round) + 1, plan_.writes == Writes::own ? Since::read : Since::wrote,
                      is_written(plan_.rank) ? Since::wrote : Since::read);
  }

  // From what all ranks see alike: whether a buffer is staged. By every thread that fills tables, since asking one of
  // them would take a barrier; the rest of the plan is theirs to know when the tables are. A call: inline it spilled.
  RONDO_DEVICE_CALL bool decide() const {
    bool staged = false, ends_together = plan_.ranks > 1 && plan_.writes != Writes::own;
    std::uint64_t most = 1;
    RONDO_NO_UNROLL
    for (int rank = 0; plan_.ranks > 1 && rank < plan_.ranks; ++rank) {
      if (is_read(rank) && block_.input[rank] == nullptr) staged = true;
      if (is_read(rank) && block_.input[rank] != nullptr) ends_together = true;
      if (is_written(rank) && block_.output[rank] == nullptr) staged = true;
      if (block_.rounds[rank] > most) most = block_.rounds[rank];
    }
    if (thread_index() != 0) return staged;
    block_.plan.staged = staged;
    block_.plan.ends_together = ends_together;
    block_.plan.rounds = staged ? static_cast<unsigned>(most) : 1;
    if (staged && plan_.step == 0) trap("the staging area is smaller than least_staging_bytes");
    return staged;
  }

  // ---- what a round moves ----

  RONDO_DEVICE Range whole_share() const {
    return aligned_part({0, operation_.count}, plan_.element, operation_.channels, static_cast<int>(block_index()));
  }
  RONDO_DEVICE Range in_round(Range share, unsigned round, bool staged) const {
    return staged ? clip(share, {std::uint64_t{round} * plan_.step, plan_.step}) : share;
  }

  // What this rank's task is in a round: places in the buffers that it reads and writes, and in staging areas.
  struct Places {
    std::uint64_t from, to, count;  // elements
    std::uint64_t staged;           // bytes
  };
  RONDO_DEVICE Places places(unsigned round, bool staged) const {
    if (!is_in_blocks()) {
      const Range range = in_round(whole_share(), round, staged);
      const Range mine = plan_.cut == Cut::whole ? range : aligned_part(range, plan_.element, plan_.ranks, plan_.rank);
      return {mine.offset, mine.offset, mine.count, (mine.offset - range.offset) * plan_.element};
    }
    const bool sends = sends_blocks(plan_);
    const BlockShare& block = sends ? block_.sends[plan_.rank] : block_.receives[plan_.rank];
    const Range range = in_round(block.share, round, staged);
    const std::uint64_t placed = block.start + range.offset;
    return {sends ? placed : range.offset, sends ? range.offset : placed, range.count, slot_of(plan_.rank)};
  }
  // Of all_to_all: what `peer` has for this rank. Its arrival points to the block.
  RONDO_DEVICE Places places_from(int peer, unsigned round, bool staged) const {
    const BlockShare& block = block_.receives[peer];
    const Range range = in_round(block.share, round, staged);
    const std::uint64_t start = peer == plan_.rank ? block_.sends[peer].start : 0;
    return {start + range.offset, block.start + range.offset, range.count, slot_of(plan_.rank)};
  }

  // ---- staging: input of epoch e in half e of the area, outputs pushed in that epoch in the other ----

  RONDO_DEVICE std::byte* staging(int rank, std::uint64_t parity) const {
    return block_.patience.team->windows[0][rank] +
           (2 * std::uint64_t{block_index()} + (parity & 1)) * plan_.half_bytes;
  }
  // Of the rank that reads or writes it; bytes.
  RONDO_DEVICE std::uint64_t slot_of(int rank) const {
    return static_cast<unsigned>(rank) * plan_.step * plan_.element;
  }

  RONDO_DEVICE void list_copy(int index, std::byte* to, const std::byte* from, std::uint64_t count) const {
    block_.source[index] = from;
    block_.target[index] = to;
    block_.bytes[index] = count * plan_.element;
  }
  struct List {  // of moves: each from `sources` to `targets`, entry i of the tables onwards
    int moves = 0, sources = 1, targets = 1;
    const WindowArithmetic* arithmetic = nullptr;
  };
  // By all threads: fills the tables.
  RONDO_DEVICE List list_moves(int phase, unsigned round) const {
    if (phase == 0) return stages_input() ? copy_in(round) : List{};
    if (phase == 2) return stages_output() ? copy_out(round) : List{};
    const bool staged = round == 0 ? decide() : plan_.staged;
    if (Fold::kAny && plan_.cut == Cut::nothing) return {};
    return Fold::kAny && plan_.reads == Reads::each ? move_each(round, staged) : move_one(round, staged);
  }
  // decided: the plan has been, with the list.
  RONDO_DEVICE void run_list(List list, bool decided) const {
    if (list.moves == 0 && !decided) return;
    block_sync();
    if (decided) {
      RONDO_STAMP(decided);
    }
    if (list.moves == 0) return;
    if (list.arithmetic == nullptr && block_.target[list.targets - 1] == block_.source[0]) {
      --list.targets;  // a copy onto itself is none
    }
    RONDO_NO_UNROLL
    for (int i = 0; i < list.moves; ++i) {
      if (block_.bytes[i] == 0 || list.targets == 0) continue;
      move_window<Fold>(
          {block_.source + i, block_.target + i, list.sources, list.targets, block_.bytes[i], list.arithmetic});
    }
    RONDO_STAMP(moved);
  }

  // Before anybody is met: that they go in rounds is clear, since this rank stages.
  RONDO_DEVICE List copy_in(unsigned round) const {
    std::byte* const area = staging(plan_.rank, epoch(round));
    const bool blocks = is_in_blocks();
    const int copies = blocks ? plan_.ranks : 1;
    block_sync();
    RONDO_NO_UNROLL
    for (int i = static_cast<int>(thread_index()); i < copies; i += static_cast<int>(block_threads())) {
      if (!blocks) {
        const Range range = in_round(whole_share(), round, true);
        list_copy(0, area, operation_.input + range.offset * plan_.element, range.count);
      } else {
        const Range range = in_round(block_.sends[i].share, round, true);
        list_copy(i, area + slot_of(i), operation_.input + (block_.sends[i].start + range.offset) * plan_.element,
                  i == plan_.rank ? 0 : range.count);
      }
    }
    return {.moves = copies};
  }

  // What the others put there; this rank's own part is in place already.
  RONDO_DEVICE List copy_out(unsigned round) const {
    const std::byte* const area = staging(plan_.rank, epoch(round) + 1);
    const bool blocks = is_in_blocks();
    const int copies = blocks ? plan_.ranks : 2;
    RONDO_NO_UNROLL
    for (int i = static_cast<int>(thread_index()); i < copies; i += static_cast<int>(block_threads())) {
      if (!blocks) {  // before and after the own part
        const Range range = in_round(whole_share(), round, true);
        const Range mine = aligned_part(range, plan_.element, plan_.ranks, plan_.rank);
        const std::uint64_t end = mine.offset + mine.count - range.offset;
        const std::uint64_t first = i == 0 ? 0 : end;
        list_copy(i, operation_.output + (range.offset + first) * plan_.element, area + first * plan_.element,
                  i == 0 ? mine.offset - range.offset : range.count - end);
      } else {
        const Range range = in_round(block_.receives[i].share, round, true);
        list_copy(i, operation_.output + (block_.receives[i].start + range.offset) * plan_.element, area + slot_of(i),
                  i == plan_.rank ? 0 : range.count);
      }
    }
    return {.moves = copies};
  }

  // ---- moving ----

  RONDO_DEVICE const std::byte* source(int rank, const Places& at, unsigned round) const {
    if (rank == plan_.rank) return operation_.input + at.from * plan_.element;
    if (block_.input[rank] != nullptr) return block_.input[rank] + at.from * plan_.element;
    return staging(rank, epoch(round)) + at.staged;
  }
  RONDO_DEVICE std::byte* target(int rank, const Places& at, unsigned round) const {
    if (rank == plan_.rank) return operation_.output + at.to * plan_.element;
    if (block_.output[rank] != nullptr) return block_.output[rank] + at.to * plan_.element;
    return staging(rank, epoch(round) + 1) + at.staged;
  }

  RONDO_DEVICE List move_each(unsigned round, bool staged) const {
    RONDO_NO_UNROLL
    for (int i = static_cast<int>(thread_index()); i < plan_.ranks; i += static_cast<int>(block_threads())) {
      const int peer = (plan_.rank + i) % plan_.ranks;  // every rank begins with another
      const Places at = places_from(peer, round, staged);
      list_copy(i, target(plan_.rank, at, round), source(peer, at, round), at.count);
    }
    return {.moves = plan_.ranks};
  }

  RONDO_DEVICE List move_one(unsigned round, bool staged) const {
    const bool folds = !Fold::kAny || plan_.reads == Reads::fold;
    const List list{.moves = 1,
                    .sources = folds ? plan_.ranks : 1,
                    .targets = plan_.writes == Writes::all ? plan_.ranks : 1,
                    .arithmetic = folds ? &plan_.arithmetic : nullptr};
    const Places at = places(round, staged);
    const int from = plan_.reads == Reads::root ? plan_.root : plan_.rank;
    RONDO_NO_UNROLL
    for (int i = static_cast<int>(thread_index()); i < plan_.ranks; i += static_cast<int>(block_threads())) {
      if (i < list.sources) block_.source[i] = source(folds ? i : from, at, round);
      if (i < list.targets) block_.target[i] = target(target_rank(i, from), at, round);
      if (i == 0) block_.bytes[0] = at.count * plan_.element;
    }
    return list;
  }
  // Every rank begins with another peer; whom it copies from comes last.
  RONDO_DEVICE int target_rank(int index, int from) const {
    if (plan_.writes == Writes::own) return plan_.rank;
    if (plan_.writes == Writes::root) return plan_.root;
    if (index == plan_.ranks - 1) return from;
    const int peer = (plan_.rank + 1 + index) % plan_.ranks;
    const int skipped = (from - plan_.rank - 1 + plan_.ranks) % plan_.ranks;
    return index < skipped ? peer : (peer + 1) % plan_.ranks;
  }

  WindowBlock& block_;
  const WindowPlan& plan_;
  const Operation& operation_;
};

// By one thread, when the operation before is over for all; a barrier must follow. Peers who have seen an arrival find
// the history.
RONDO_DEVICE void prepare(WindowBlock& block, const Launch& launch, int index) {
  const Operation& operation = launch.operation[index];
  DeviceSignature signature = operation.signature;
  if (signature.sequence == 0) signature.sequence = block.sequence + static_cast<unsigned>(index) + 1;
  block.patience.operation = signature;
  if (block_index() == 0) write_history(own_header(*launch.team), signature);
  RONDO_STAMP(history);
  plan_operation(block, *launch.team, operation);
  RONDO_STAMP(planned);
}

// The first is prepared. Blocks beyond the channels of an operation have nothing to do with it but count.
RONDO_DEVICE bool run_window_operation(WindowBlock& block, const Launch& launch, int index) {
  const Operation& operation = launch.operation[index];
  if (index > 0) {
    block_sync();  // the operation before is over for all threads
    if (thread_index() == 0) prepare(block, launch, index);
  }
  if (block_index() >= operation.channels) return true;
  if (index > 0) block_sync();
  if (block.plan.cut == Cut::blocks) {
    if (sends_blocks(block.plan)) plan_blocks(block.sends, launch, operation, operation.send_counts);
    if (receives_blocks(block.plan)) plan_blocks(block.receives, launch, operation, operation.recv_counts);
    block_sync();
  }
  const WindowOperation<AnyFold> task(block);
  if (!task.run([&] { return task.begin(); })) return false;
  // Nobody else looks at the epoch after the operation's last barrier.
  if (thread_index() == 0) block.epoch += block.plan.rounds * (block.plan.ends_together ? 2u : 1u);
  RONDO_STAMP(finished);
  return true;
}

// One thread reads the rank's counters, before a barrier, and one writes them at the end: no other barrier is needed.
RONDO_KERNEL window_kernel(RONDO_KERNEL_ARGUMENT Launch launch) {
  RONDO_SHARED(WindowBlock, block);
  RONDO_STAMP(begin);
  await_stream();
  RONDO_STAMP(awaited);
  const DeviceTeam& team = *launch.team;
  RegionHeader& header = own_header(team);
  bool alive = enter_alone(launch, Protocol::simple, true);
  if (thread_index() == 0) {
    block.patience = {&team, timer_ns(), launch.timeout_ns, {}, Protocol::simple, true};
    block.epoch = load<std::uint64_t>(&header.block_epoch[block_index()]);
    block.sequence = latest_sequence(team);
    alive = alive && load_relaxed(&header.failed) == 0;
    if (alive && launch.operations > 0) prepare(block, launch, 0);
  }
  alive = !block_or(!alive);  // one look for all: another block may fail meanwhile
  RONDO_STAMP(opened);
  RONDO_NO_UNROLL
  for (int i = 0; i < launch.operations && alive; ++i) alive = run_window_operation(block, launch, i);
  if (thread_index() == 0) store<std::uint64_t>(&header.block_epoch[block_index()], block.epoch);
  advance_sequence(header, block.sequence + static_cast<unsigned>(launch.operations));
  if (!alive && thread_index() == 0) store_relaxed(&header.failed, 1);
  if (launch.guarded != 0) block_sync();  // a thread leaves for all
  leave_alone(launch);
  RONDO_STAMP_END(team);
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
