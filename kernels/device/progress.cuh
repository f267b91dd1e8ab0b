// SPDX-License-Identifier: Apache-2.0
// Moves in progress: one thread looks which of them can go on, tells the block, and the block moves a slice of it, in
// turn. Nothing waits for a link while another move could go on, so an exchange or a group of messages ends whatever
// the order in which its peers serve it. Moves over one link keep their order.
#pragma once
#include "kernels/device/fifo.cuh"

namespace rondo::kernels::device::inline RONDO_SEAM {

// A move without a peer, or by steps that refer, is cut too, so that lengths within a slice stay in 32 bits.
inline constexpr std::uint32_t kLocalSlice = 1u << 20;

// Is there room for a step to the peer of `link`? Else `spin` watches for it.
RONDO_DEVICE bool has_room(const FifoBlock& block, Link& link, SpinAny& spin) {
  if (link.sent - link.freed < block.slots) return true;
  const std::uint64_t* word = &mailbox_at(link.mine).freed;
  link.freed = load_credit(word);
  if (link.sent - link.freed < block.slots) return true;
  spin.watch(word, link.freed);
  return false;
}
template <class P>
RONDO_DEVICE bool has_arrived(const FifoBlock& block, Link& link, SpinAny& spin) {
  if (link.posted > link.received) return true;
  const std::uint64_t* word = P::arrival_word(link.mine, slot_of(block, link.mine, link.received));
  const std::uint64_t seen = load_acquire(word);
  link.posted = P::posted(seen, link.received);
  if (link.posted > link.received) return true;
  spin.watch(word, seen);
  return false;
}

// Which moves may go next: those whose links no earlier unfinished move holds. One bit each.
RONDO_DEVICE std::uint32_t find_claimed(const FifoBlock& block, int moves) {
  if (moves == 1) return 1;
  std::uint64_t sending = 0, receiving = 0;
  std::uint32_t free = 0;
  for (int i = 0; i < moves; ++i) {
    const Active& active = block.active[i];
    if (active.finished) continue;
    const std::uint64_t to = active.to == kNobody ? 0 : std::uint64_t{1} << active.to;
    const std::uint64_t from = active.from == kNobody ? 0 : std::uint64_t{1} << active.from;
    if ((sending & to) == 0 && (receiving & from) == 0) free |= std::uint32_t{1} << i;
    sending |= to;
    receiving |= from;
  }
  return free;
}

// LL and LL128 wait inside a step when nothing else could be done meanwhile.
template <class P>
RONDO_DEVICE bool can_go_on(FifoBlock& block, const Active& active, bool alone, SpinAny& spin) {
  if (active.to != kNobody && !has_room(block, block.link[active.to], spin)) return false;
  if (active.from == kNobody || (P::kWaitsInside && alone)) return true;
  return has_arrived<P>(block, block.link[active.from], spin);
}

// The header of the step that a move receives next, if that step refers.
RONDO_DEVICE const SlotHeader* reference_for(const FifoBlock& block, const Active& active) {
  if (!active.may_refer) return nullptr;
  const Link& link = block.link[active.from];
  const auto* header = reinterpret_cast<const SlotHeader*>(slot_of(block, link.mine, link.received));
  return header->window < 0 ? nullptr : header;
}

RONDO_DEVICE void cut_slice(FifoBlock& block, const Active& active) {
  Slice& slice = block.slice;
  const SlotHeader* reference = reference_for(block, active);
  const std::uint64_t left = active.bytes - active.done;
  const bool through_slots =
      (active.from != kNobody && reference == nullptr) || (active.to != kNobody && active.window < 0);
  const std::uint64_t most = through_slots ? block.slice_bytes : kLocalSlice;
  slice.bytes = static_cast<std::uint32_t>(left < most ? left : most);
  slice.last = block.unfinished == 1 && left <= most;
  slice.window = active.window;
  slice.offset = active.offset + active.done;
  slice.refers = reference != nullptr;
  slice.local = active.local == nullptr ? nullptr : active.local + active.done;
  slice.store = active.store == nullptr ? nullptr : active.store + active.done;
  slice.complete = active.complete;
  slice.scale = active.scale;
  slice.signature = active.signature;
  slice.key = active.key;
  slice.from = active.from;
  slice.to = active.to;
  slice.from_slot = slice.to_slot = nullptr;
  if (reference != nullptr) {  // a sender of something else may have less there than this move expects
    slice.local = block.patience.team->windows[reference->window][active.from] + reference->offset;
    if (reference->bytes < slice.bytes) slice.bytes = static_cast<std::uint32_t>(reference->bytes);
  }
  if (active.from != kNobody) {
    const Link& link = block.link[active.from];
    slice.from_step = link.received;
    slice.from_slot = slot_of(block, link.mine, link.received);
    slice.freed = &mailbox_at(link.theirs).freed;
  }
  if (active.to != kNobody) {
    const Link& link = block.link[active.to];
    slice.to_step = link.sent;
    slice.to_slot = slot_of(block, link.theirs, link.sent);
    slice.posted = &mailbox_at(link.theirs).posted;
  }
}

// By one thread: waits until a move can go on, and cuts its next slice. false: gave up.
template <class P>
RONDO_DEVICE_CALL bool choose_slice(FifoBlock& block, int moves) {
  SpinAny spin;
  std::uint64_t began = 0;
  for (;;) {
    spin.begin();
    const std::uint32_t claimed = find_claimed(block, moves);
    int blocked = -1;
    for (int turn = 1; turn <= moves; ++turn) {
      const int i = (block.latest + turn) % moves;
      if ((claimed >> i & 1) == 0) continue;
      if (can_go_on<P>(block, block.active[i], moves == 1, spin)) {
        block.latest = i;
        cut_slice(block, block.active[i]);
        return true;
      }
      blocked = i;
    }
    if (!spin.pause(abort_word(block.patience))) continue;
    const Active& active = block.active[blocked];
    const bool for_credit =
        active.to != kNobody && block.link[active.to].sent - block.link[active.to].freed >= block.slots;
    const int peer = for_credit ? active.to : active.from;
    const std::uint64_t step = for_credit ? block.link[peer].sent : block.link[peer].received;
    began = look_up(block.patience, peer, step, active.signature, began);
    if (began == kGaveUp) return false;
  }
}

// By the same thread when the block has moved the slice.
RONDO_DEVICE void finish_slice(FifoBlock& block) {
  Active& active = block.active[block.latest];
  if (active.from != kNobody) ++block.link[active.from].received;
  if (active.to != kNobody) ++block.link[active.to].sent;
  active.done += block.slice.bytes;
  active.finished = active.done == active.bytes;
  if (active.finished) --block.unfinished;
}

// What steps referred to is its sender's again once they are taken. By all threads; false: this thread gave up.
RONDO_DEVICE bool await_taken(FifoBlock& block) {
  bool fine = true;
  for (int peer = static_cast<int>(thread_index()); peer < block.world_size;
       peer += static_cast<int>(block_threads())) {
    if ((block.lent >> peer & 1) == 0) continue;
    const Link& link = block.link[peer];
    const auto taken = [&](std::uint64_t freed) { return freed >= link.sent; };
    fine = fine && wait_for_credit(block.patience, &mailbox_at(link.mine).freed, peer, link.sent, block.lending, taken);
  }
  return fine;
}

// By all threads, after one thread has filled `moves` actives; until all are finished, or the block fails.
template <class P>
RONDO_DEVICE_CALL void progress(FifoBlock& block, int moves) {
  const unsigned thread = thread_index(), creditor = block_threads() > 32 ? 32 : 0;
  bool last = false;
  if (thread == 0) {
    block.unfinished = moves;
    block.latest = moves - 1;
  }
  while (!last) {
    bool fine = thread != 0 || choose_slice<P>(block, moves);
    if (!block_or(!fine)) {
      RONDO_STAMP(chosen);
      const Slice& slice = block.slice;
      last = slice.last;
      std::uint64_t* const freed = slice.from_slot == nullptr ? nullptr : slice.freed;
      const std::uint64_t from_step = slice.from_step;
      fine = P::move(block);
      if (!block_or(!fine)) {
        RONDO_STAMP(moved);
        // Two threads of different warps, since a release waits for all that came before it. What has been received is
        // stored in this rank's memory, which the peer does not read: the credit comes after loads.
        if (thread == creditor && freed != nullptr) give_credit(freed, from_step + 1);
        if (thread != 0) continue;
        if (slice.to_slot != nullptr) P::post(slice.posted, slice.to_step);
        finish_slice(block);
        RONDO_STAMP(credited);
        continue;
      }
    }
    if (thread == 0) block.failed = true;
    block_sync();
    return;
  }
}

// One step of a fold from every peer: what `slice` says of this rank, of the others in rank order. By all threads.
template <class P>
RONDO_DEVICE_CALL void fold_step(FifoBlock& block, const FoldSlice& slice) {
  block_sync();  // thread 0 may still be finishing the slice before
  const int first = static_cast<int>(thread_index()), stride = static_cast<int>(block_threads());
  bool fine = true;
  for (int peer = first; peer < block.world_size; peer += stride) {
    if (peer == block.rank) continue;
    Link& link = block.link[peer];
    block.source[peer] = {slot_of(block, link.mine, link.received), link.received};
    if (P::kWaitsInside || link.posted > link.received) continue;
    const auto ready = [&](std::uint64_t word) { return (link.posted = word) > link.received; };
    fine = fine && wait_for(block.patience, P::arrival_word(link.mine, nullptr), peer, link.received,
                            block.patience.operation, ready);
  }
  if (!block_or(!fine)) {
    RONDO_STAMP(arrived);
    fine = P::fold(block, slice);
    for (int peer = first; peer < block.world_size; peer += stride) {
      if (peer != block.rank) ++block.link[peer].received;
    }
    if (!block_or(!fine)) {
      RONDO_STAMP(folded);
      for (int peer = first; peer < block.world_size; peer += stride) {
        if (peer == block.rank) continue;
        const Link& link = block.link[peer];
        give_credit(&mailbox_at(link.theirs).freed, link.received);
      }
      RONDO_STAMP(credited);
      return;
    }
  }
  if (thread_index() == 0) block.failed = true;
  block_sync();
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
