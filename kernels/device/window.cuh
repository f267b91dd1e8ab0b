// SPDX-License-Identifier: Apache-2.0
// The window kernel: any row of kWindowAlgorithms, in place in the peers' memory. A block meets the same-numbered
// blocks of its peers, moves its share of the message, and meets them again where somebody's memory must not change
// before. Where a buffer lies in no window, its rank passes it through its staging area, and all ranks go in rounds.
#pragma once
#include <utility>

#include "kernels/device/window_meet.cuh"

namespace rondo::kernels::device::inline RONDO_SEAM {

// Part `index` of `parts`; all but the last end are multiples of 16 bytes away from the start.
RONDO_DEVICE Range aligned_part(Range whole, unsigned element, int parts, int index) {
  if (parts == 1) return whole;
  const std::uint64_t unit = kVector / element;
  const Range units = part({0, (whole.count + unit - 1) / unit}, parts, index);
  const std::uint64_t first = units.offset * unit, end = (units.offset + units.count) * unit;
  const std::uint64_t last = end < whole.count ? end : whole.count;
  return {whole.offset + (first < last ? first : last), first < last ? last - first : 0};
}

// What a row says: device code reads no table of the host's.
template <int... kIds>
RONDO_DEVICE void plan_row(WindowPlan& plan, int id, std::integer_sequence<int, kIds...>) {
  const auto match = [&]<int kId>(std::integral_constant<int, kId>) {
    constexpr auto kReads = kWindowAlgorithms[kId].reads;
    constexpr auto kWrites = kWindowAlgorithms[kId].writes;
    constexpr auto kCut = kWindowAlgorithms[kId].cut;
    if (id != kId) return;
    plan.reads = kReads;
    plan.writes = kWrites;
    plan.cut = kCut;
  };
  (match(std::integral_constant<int, kIds>{}), ...);
}

class WindowOperation {
 public:
  RONDO_DEVICE WindowOperation(WindowBlock& block, const Launch& launch, const Operation& operation)
      : block_(block), plan_(block.plan), launch_(launch), operation_(operation) {}

  // By one thread, before run.
  RONDO_DEVICE void prepare() const {
    WindowPlan& plan = block_.plan;
    const Team& team = *launch_.team;
    plan_row(plan, operation_.algorithm, std::make_integer_sequence<int, kWindowAlgorithmCount>{});
    plan.rank = team.rank;
    plan.ranks = team.world_size;
    plan.root = operation_.root;
    plan.element = element_bytes(static_cast<DataType>(operation_.dtype));
    const auto blocks = static_cast<unsigned>(team.layout.blocks), slots = static_cast<unsigned>(plan.ranks);
    plan.half_bytes = team.staging_bytes / blocks / (2 * kLine) * kLine;
    plan.step = plan.half_bytes / (plan.cut == Cut::blocks ? slots : 1) / kLine * kLine / plan.element;
  }

  // All threads. `epoch` counts on; false: drain.
  RONDO_DEVICE bool run(std::uint64_t key, std::uint64_t& epoch) const {
    for (std::uint64_t round = 0;; ++round) {
      ++epoch;
      if (stages_input()) copy_in(round, epoch);
      if (!(round == 0 ? begin(key, epoch) : meet_again(block_, epoch))) return false;
      move(round, epoch);
      const bool last = !plan_.staged || round + 1 >= plan_.most_rounds;
      if (plan_.ends_together) {
        ++epoch;
        if (!meet_again(block_, epoch)) return false;
        if (stages_output()) copy_out(round, epoch - 1);
      }
      if (last) return true;
    }
  }

 private:
  // ---- who reads and writes whose memory ----

  RONDO_DEVICE bool is_read(int rank) const {  // by others
    return plan_.reads == Reads::fold || plan_.reads == Reads::each ||
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

  RONDO_DEVICE bool begin(std::uint64_t key, std::uint64_t epoch) const {
    Arrival own{};
    own.epoch = epoch;
    own.key = key;
    own.send_offset = operation_.send_offset;
    own.recv_offset = operation_.recv_offset;
    own.send_window = input_is_shared() ? operation_.send_window : -1;
    own.recv_window = operation_.recv_window;
    own.factor = operation_.factor;
    own.rounds = own_rounds();
    const auto offset_for = [&](int peer) {
      return plan_.reads == Reads::each ? send_block(peer).offset * plan_.element : std::uint64_t{0};
    };
    if (!meet_first(block_, own, offset_for)) return false;
    if (thread_index() == 0) decide();
    block_sync();
    return true;
  }

  // From what all ranks see alike.
  RONDO_DEVICE void decide() const {
    WindowPlan& plan = block_.plan;
    plan.staged = false;
    plan.ends_together = plan.ranks > 1 && plan.writes != Writes::own;
    plan.most_rounds = 1;
    if (plan.ranks == 1) return;
    for (int rank = 0; rank < plan.ranks; ++rank) {
      if (is_read(rank) && block_.input[rank] == nullptr) plan.staged = true;
      if (is_read(rank) && block_.input[rank] != nullptr) plan.ends_together = true;
      if (is_written(rank) && block_.output[rank] == nullptr) plan.staged = true;
      if (block_.rounds[rank] > plan.most_rounds) plan.most_rounds = block_.rounds[rank];
    }
    if (plan.staged && plan.step == 0) trap("the staging area is smaller than least_staging_bytes");
  }

  // ---- rounds and shares ----

  RONDO_DEVICE Range counted_block(int first_count, int of) const {
    const auto index = static_cast<std::uint64_t>(of);
    if (first_count == kNoCounts) return {index * operation_.count, operation_.count};
    Range range{0, launch_.counts[first_count + of]};
    for (int before = 0; before < of; ++before) range.offset += launch_.counts[first_count + before];
    return range;
  }
  RONDO_DEVICE Range send_block(int of) const { return counted_block(operation_.send_counts, of); }
  RONDO_DEVICE Range recv_block(int of) const { return counted_block(operation_.recv_counts, of); }
  RONDO_DEVICE bool sends_blocks() const { return plan_.reads != Reads::own; }  // of rows that cut by blocks
  RONDO_DEVICE bool receives_blocks() const { return plan_.reads == Reads::own || plan_.reads == Reads::each; }

  // Of something of so many elements, what this block has to move in all.
  RONDO_DEVICE Range share_of(std::uint64_t count) const {
    return aligned_part({0, count}, plan_.element, operation_.channels, static_cast<int>(block_index()));
  }
  // ... and in one round.
  RONDO_DEVICE Range in_round(std::uint64_t count, std::uint64_t round, bool staged) const {
    const Range share = share_of(count);
    return staged ? clip(share, {round * plan_.step, plan_.step}) : share;
  }
  RONDO_DEVICE Range in_round(std::uint64_t count, std::uint64_t round) const {
    return in_round(count, round, plan_.staged);
  }
  RONDO_DEVICE std::uint64_t rounds_of(std::uint64_t count) const {
    return plan_.step == 0 ? 1 : (share_of(count).count + plan_.step - 1) / plan_.step;
  }
  RONDO_DEVICE std::uint64_t own_rounds() const {
    if (plan_.cut != Cut::blocks) return rounds_of(operation_.count);
    std::uint64_t rounds = 1;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const std::uint64_t sent = sends_blocks() ? rounds_of(send_block(rank).count) : 0;
      const std::uint64_t received = receives_blocks() ? rounds_of(recv_block(rank).count) : 0;
      rounds = sent > rounds ? sent : rounds;
      rounds = received > rounds ? received : rounds;
    }
    return rounds;
  }
  // Of the rank that reads or writes it, in a staging area; bytes.
  RONDO_DEVICE std::uint64_t slot_of(int rank) const {
    return static_cast<unsigned>(rank) * plan_.step * plan_.element;
  }

  // ---- staging: input of epoch e in half e of the area, output pushed in that epoch in the other ----

  RONDO_DEVICE std::byte* staging(int rank, std::uint64_t parity) const {
    return launch_.team->windows[0][rank] + (2 * std::uint64_t{block_index()} + (parity & 1)) * plan_.half_bytes;
  }

  // Before anybody is met: that they go in rounds is clear, since this rank stages.
  RONDO_DEVICE void copy_in(std::uint64_t round, std::uint64_t epoch) const {
    std::byte* const area = staging(plan_.rank, epoch);
    if (plan_.cut != Cut::blocks) {
      const Range range = in_round(operation_.count, round, true);
      copy(area, operation_.input + range.offset * plan_.element, range.count);
    } else {
      for (int reader = 0; reader < plan_.ranks; ++reader) {
        if (reader == plan_.rank) continue;
        const Range block = send_block(reader);
        const Range range = in_round(block.count, round, true);
        copy(area + slot_of(reader), operation_.input + (block.offset + range.offset) * plan_.element, range.count);
      }
    }
  }

  // What the others put there; this rank's own part is in place already.
  RONDO_DEVICE void copy_out(std::uint64_t round, std::uint64_t epoch) const {
    const std::byte* const area = staging(plan_.rank, epoch + 1);
    if (plan_.cut != Cut::blocks) {
      const Range range = in_round(operation_.count, round);
      const Range mine = aligned_part(range, plan_.element, plan_.ranks, plan_.rank);
      const std::uint64_t before = mine.offset - range.offset, after = before + mine.count;
      std::byte* const output = operation_.output + range.offset * plan_.element;
      copy(output, area, before);
      copy(output + after * plan_.element, area + after * plan_.element, range.count - after);
    } else {
      for (int writer = 0; writer < plan_.ranks; ++writer) {
        if (writer == plan_.rank) continue;
        const Range block = recv_block(writer);
        const Range range = in_round(block.count, round);
        copy(operation_.output + (block.offset + range.offset) * plan_.element, area + slot_of(writer), range.count);
      }
    }
  }
  RONDO_DEVICE void copy(std::byte* to, const std::byte* from, std::uint64_t count) const {
    copy_bytes(to, from, count * plan_.element);
  }

  // ---- moving ----

  // Elements from the start of the buffers that this rank reads and writes; bytes in staging areas.
  struct Places {
    std::uint64_t from, to, count, staged;
  };
  RONDO_DEVICE Places places(std::uint64_t round) const {
    if (plan_.cut == Cut::whole) {
      const Range range = in_round(operation_.count, round);
      return {range.offset, range.offset, range.count, 0};
    }
    if (plan_.cut == Cut::parts) {
      const Range range = in_round(operation_.count, round);
      const Range mine = aligned_part(range, plan_.element, plan_.ranks, plan_.rank);
      return {mine.offset, mine.offset, mine.count, (mine.offset - range.offset) * plan_.element};
    }
    const Range block = sends_blocks() ? send_block(plan_.rank) : recv_block(plan_.rank);
    const Range range = in_round(block.count, round);
    const std::uint64_t placed = block.offset + range.offset;
    return {sends_blocks() ? placed : range.offset, sends_blocks() ? range.offset : placed, range.count,
            slot_of(plan_.rank)};
  }
  // Of all_to_all: what `peer` has for this rank. Its arrival points to it.
  RONDO_DEVICE Places places_of(int peer, std::uint64_t round) const {
    const Range block = recv_block(peer);
    const Range range = in_round(block.count, round);
    const std::uint64_t own = peer == plan_.rank ? send_block(plan_.rank).offset : 0;
    return {own + range.offset, block.offset + range.offset, range.count, slot_of(plan_.rank)};
  }

  RONDO_DEVICE const std::byte* source(int rank, const Places& at, std::uint64_t epoch) const {
    if (rank == plan_.rank) return operation_.input + at.from * plan_.element;
    if (block_.input[rank] != nullptr) return block_.input[rank] + at.from * plan_.element;
    return staging(rank, epoch) + at.staged;
  }
  RONDO_DEVICE std::byte* target(int rank, const Places& at, std::uint64_t epoch) const {
    if (rank == plan_.rank) return operation_.output + at.to * plan_.element;
    if (block_.output[rank] != nullptr) return block_.output[rank] + at.to * plan_.element;
    return staging(rank, epoch + 1) + at.staged;
  }

  RONDO_DEVICE void move(std::uint64_t round, std::uint64_t epoch) const {
    if (plan_.cut == Cut::nothing) return;
    const bool each = plan_.reads == Reads::each;
    const int sources = plan_.reads == Reads::fold ? plan_.ranks : 1;
    const int targets = plan_.writes == Writes::all ? plan_.ranks : 1;
    const int from = plan_.reads == Reads::root ? plan_.root : plan_.rank;
    const Places at = each ? Places{} : places(round);
    for (int i = static_cast<int>(thread_index()); i < plan_.ranks; i += static_cast<int>(block_threads())) {
      // Every rank begins with another peer: targets behind this rank, the one it copies from last.
      const int peer = (plan_.rank + 1 + i) % plan_.ranks,
                skipped = (from - plan_.rank - 1 + plan_.ranks) % plan_.ranks;
      const int place = i == skipped ? plan_.ranks - 1 : i - (i > skipped ? 1 : 0);
      const Places here = each ? places_of(i, round) : at;
      if (each || sources > 1 || i == 0) block_.source[i] = source(each || sources > 1 ? i : from, here, epoch);
      if (each) {
        block_.target[i] = target(plan_.rank, here, epoch);
      } else if (targets > 1) {
        block_.target[place] = target(peer, here, epoch);
      } else if (i == 0) {
        block_.target[0] = target(plan_.writes == Writes::root ? plan_.root : plan_.rank, here, epoch);
      }
    }
    block_sync();
    const int turns = each ? plan_.ranks : 1;
    RONDO_NO_UNROLL
    for (int turn = 0; turn < turns; ++turn) {
      if (thread_index() == 0)
        prepare_move(each ? (plan_.rank + turn) % plan_.ranks : 0, sources, targets, round, at.count);
      block_sync();
      if (block_.move.bytes != 0 && block_.move.targets != 0) move_window(block_.move);
      if (turn + 1 < turns) block_sync();
    }
  }

  // By one thread, from the tables. all_to_all: one peer after the other.
  RONDO_DEVICE void prepare_move(int peer, int sources, int targets, std::uint64_t round, std::uint64_t count) const {
    WindowMove& move = block_.move;
    const auto op = static_cast<ReduceOp::Kind>(operation_.op);
    const bool reduces = plan_.reads == Reads::fold, each = plan_.reads == Reads::each;
    move.source = block_.source + peer;
    move.target = block_.target + peer;
    move.sources = sources;
    // A copy onto itself is none.
    move.targets = !reduces && !each && block_.target[targets - 1] == block_.source[0] ? targets - 1 : targets;
    move.bytes = (each ? places_of(peer, round).count : count) * plan_.element;
    move.dtype = static_cast<DataType>(operation_.dtype);
    move.op = reduces ? op : ReduceOp::sum;
    move.factor = reduces && op == ReduceOp::premultiplied_sum ? block_.factor : nullptr;
    move.divisor = reduces && op == ReduceOp::average ? static_cast<double>(plan_.ranks) : 1;
  }

  WindowBlock& block_;
  const WindowPlan& plan_;
  const Launch& launch_;
  const Operation& operation_;
};

// Blocks beyond the channels of an operation have nothing to do with it but count.
RONDO_DEVICE bool run_window_operation(WindowBlock& block, const Launch& launch, const Operation& operation,
                                       std::uint64_t sequence, std::uint64_t& epoch) {
  Signature signature = operation.signature;
  if (signature.sequence == 0) signature.sequence = sequence;
  block_sync();  // the operation before is over for all threads
  const WindowOperation window(block, launch, operation);
  if (thread_index() == 0) {
    block.patience.operation = signature;
    if (block_index() == 0) write_history(*launch.team, signature);
    window.prepare();
  }
  if (block_index() >= operation.channels) return true;
  block_sync();
  return window.run(key_of(signature), epoch);
}

RONDO_KERNEL window_kernel(RONDO_KERNEL_ARGUMENT Launch launch) {
  RONDO_SHARED(WindowBlock, block);
  const Team& team = *launch.team;
  RegionHeader& header = own_header(team);
  const std::uint64_t latest = latest_sequence(team);
  std::uint64_t epoch = load<std::uint64_t>(&header.block_epoch[block_index()]);
  bool alive = load<std::uint64_t>(&header.failed) == 0;
  if (thread_index() == 0) {
    block.patience = {&team, timer_ns(), launch.timeout_ns, {}, Protocol::simple, true};
  }
  alive = !block_or(!alive);  // another block may fail meanwhile
  const auto operations = static_cast<std::uint64_t>(launch.operations);
  for (std::uint64_t i = 0; i < operations && alive; ++i) {
    alive = run_window_operation(block, launch, launch.operation[i], latest + i + 1, epoch);
  }
  block_sync();
  advance_sequence(team, latest + operations);
  if (thread_index() != 0) return;
  store<std::uint64_t>(&header.block_epoch[block_index()], epoch);
  if (!alive) store_relaxed(&header.failed, 1);
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
