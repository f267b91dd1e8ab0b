// SPDX-License-Identifier: Apache-2.0
// Moves in progress, in rounds: the first warp, with a lane for each move, looks which of them can go on, and the block
// moves a slice of every one that can, side by side. Nothing waits for a link while another move could go on, so an
// exchange or a group of messages ends whatever the order in which its peers serve it. Moves over one link keep their
// order. While a round of a long move goes, the first warp looks for the next; if it finds one, that costs no barrier.
#pragma once
#include "kernels/device/fifo.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

// A move without a peer, or by steps that refer, is cut too, so that lengths within a slice stay in 32 bits.
inline constexpr std::uint32_t kLocalSlice = 1u << 20;
static_assert(kMaxMessages <= 32, "a lane of the first warp for each move");

// In blocks of so many threads the first warp waits and the second posts, and neither moves: a slice on its way hides
// the looks at the next one's links, and the fence of the one before.
inline constexpr unsigned kThreadsWithRoles = 256, kRoleThreads = 64;

struct NoWatch {  // for who looks once
  template <class V>
  RONDO_DEVICE void watch(const V*, const V&) {}
};

RONDO_DEVICE bool knows_room(const FifoBlock& block, const Active& active) {
  return active.to == kNobody || block.link[active.to].sent - block.link[active.to].freed < block.slots;
}

// Is there room for a step to the peer of `link`? Else `spin` watches for it.
template <class Watch>
RONDO_DEVICE bool has_room(const FifoBlock& block, Link& link, Watch& spin) {
  if (link.sent - link.freed < block.slots) return true;
  const std::uint64_t* word = &mailbox_at(link.mine).freed;
  link.freed = load_credit(word);
  if (link.sent - link.freed < block.slots) return true;
  spin.watch(word, link.freed);
  return false;
}
template <class P, class Watch>
RONDO_DEVICE bool has_arrived(const FifoBlock& block, Link& link, Watch& spin) {
  if (link.posted > link.received) return true;
  const std::uint64_t* word = P::arrival_word(link.mine, slot_of(block, link.mine, link.received));
  const std::uint64_t seen = load_acquire(word);
  link.posted = P::posted(seen, link.received);
  if (link.posted > link.received) return true;
  spin.watch(word, seen);
  return false;
}

// The header of the step that a move receives next, if that step refers.
RONDO_DEVICE const SlotHeader* reference_for(const FifoBlock& block, const Active& active) {
  if (!active.may_refer) return nullptr;
  const Link& link = block.link[active.from];
  const auto* header = reinterpret_cast<const SlotHeader*>(slot_of(block, link.mine, link.received));
  return header->window < 0 ? nullptr : header;
}

// Bytes of a move's next slice, as its own side sees it.
RONDO_DEVICE std::uint64_t next_bytes(const FifoBlock& block, const Active& active, bool refers) {
  const std::uint64_t left = active.bytes - active.done;
  const bool through_slots = (active.from != kNobody && !refers) || (active.to != kNobody && active.window < 0);
  const std::uint64_t most = through_slots ? block.slice_bytes : kLocalSlice;
  return left < most ? left : most;
}

// The move's next slice; the move and its links go on by it.
RONDO_DEVICE void cut_slice(FifoBlock& block, Active& active, Slice& slice) {
  const SlotHeader* reference = reference_for(block, active);
  slice.active = &active;
  slice.from = static_cast<std::int8_t>(active.from);
  slice.to = static_cast<std::int8_t>(active.to);
  slice.bytes = static_cast<std::uint32_t>(next_bytes(block, active, reference != nullptr));
  slice.refers = reference != nullptr;
  slice.local = active.local == nullptr ? nullptr : active.local + active.done;
  slice.store = active.store == nullptr ? nullptr : active.store + active.done;
  slice.from_slot = slice.to_slot = nullptr;
  if (reference != nullptr) {  // a sender of something else may have less there than this move expects
    slice.local = block.patience.team->windows[reference->window][active.from] + reference->offset;
    if (reference->bytes < slice.bytes) slice.bytes = static_cast<std::uint32_t>(reference->bytes);
  }
  if (active.from != kNobody) {
    Link& link = block.link[active.from];
    slice.from_step = link.received++;
    slice.from_slot = slot_of(block, link.mine, slice.from_step);
  }
  if (active.to != kNobody) {
    Link& link = block.link[active.to];
    slice.to_step = link.sent++;
    slice.to_slot = slot_of(block, link.theirs, slice.to_step);
  }
  active.done += slice.bytes;
  active.finished = active.done == active.bytes;
}

// By one thread: waits until one of the `waiting` moves can go on. A move may wait for room first, then for another
// rank's data: then the host is told anew. false: gave up.
template <class P>
RONDO_DEVICE_CALL bool await_any(FifoBlock& block, int moves, std::uint32_t waiting, bool alone) {
  SpinAny spin;
  std::uint64_t began = 0;
  for (int waits_for = kNobody;;) {
    spin.begin();
    const Active* blocked = nullptr;
    for (int i = 0; i < moves; ++i) {
      if ((waiting >> i & 1) == 0) continue;
      const Active& active = block.active[i];
      const bool room = active.to == kNobody || has_room(block, block.link[active.to], spin);
      const bool waits_inside = P::kWaitsInside && alone;
      if (room && (active.from == kNobody || waits_inside || has_arrived<P>(block, block.link[active.from], spin))) {
        return true;
      }
      blocked = &active;
    }
    if (!spin.pause(abort_word(block.patience))) continue;
    const Active& active = *blocked;
    const bool for_credit =
        active.to != kNobody && block.link[active.to].sent - block.link[active.to].freed >= block.slots;
    const int peer = for_credit ? active.to : active.from;
    const std::uint64_t step = for_credit ? block.link[peer].sent : block.link[peer].received;
    if (peer != waits_for) began = 0;
    waits_for = peer;
    began = look_up(block.patience, peer, step, active.signature, began);
    if (began == kGaveUp) return false;
  }
}

RONDO_DEVICE unsigned bits_of(std::uint32_t mask) {
  mask -= mask >> 1 & 0x55555555u;
  mask = (mask & 0x33333333u) + (mask >> 2 & 0x33333333u);
  return ((mask + (mask >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

// By the first warp: the next slice of each of the `ready` moves. Those that send come first: a wait within a step must
// not keep them back.
RONDO_DEVICE void cut_round(FifoBlock& block, Round& round, int moves, std::uint32_t ready) {
  const unsigned lane = lane_index();
  Active& active = block.active[lane < static_cast<unsigned>(moves) ? lane : 0];
  const bool goes = (ready >> lane & 1) != 0;
  const std::uint32_t sends = warp_ballot(goes && active.to != kNobody), below = (1u << lane) - 1;
  std::uint32_t bytes = 0;
  if (goes) {
    const unsigned at = (sends >> lane & 1) != 0 ? bits_of(sends & below) : bits_of(sends | (ready & below));
    cut_slice(block, active, round.slice[at]);
    bytes = round.slice[at].bytes;
  }
  const bool left = lane < static_cast<unsigned>(moves) && !active.finished;
  const bool last = !warp_any(left), goes_on = warp_any(goes && left);
  const std::uint32_t like = shuffle(bytes, ready == 0 ? 0 : bits_of((ready & (0 - ready)) - 1));
  const bool uneven = warp_any(goes && (bytes / 2 > like || like / 2 > bytes));
  if (lane != 0) return;
  round.slices = bits_of(ready);
  round.side_by_side = !uneven;
  round.last = last;
  round.goes_on = goes_on;
  round.is_followed = false;
}

// By the first warp: chooses a round of the moves that can go on. `waits`: until there is one, and what goes without a
// look does not wait for the others; false: gave up. Else the round may have no slices. LL and LL128 wait inside a step
// when nothing else could be done meanwhile: for a move that is left alone, or where the round ends all moves and none
// that receives has to send.
template <class P>
RONDO_DEVICE_CALL bool choose_round(FifoBlock& block, Round& round, int moves, bool waits) {
  const int lane = static_cast<int>(lane_index());
  const Active& active = block.active[lane < moves ? lane : 0];
  std::uint32_t ready = 0;
  NoWatch once;
  for (;;) {
    warp_sync();
    const bool open = lane < moves && !active.finished;
    const std::uint32_t unfinished = warp_ballot(open);
    if (unfinished == 0) break;
    const bool alone = (unfinished & (unfinished - 1)) == 0;
    if (alone && waits) {
      if (warp_any(lane == 0 && !await_any<P>(block, moves, unfinished, true))) return false;
      ready = unfinished;
      break;
    }
    const bool claimed = open && (active.behind & unfinished) == 0;
    if (waits && !P::kWaitsInside) {
      ready = warp_ballot(claimed && active.from == kNobody && knows_room(block, active));
      if (ready != 0) break;
    }
    const bool room = claimed && (active.to == kNobody || has_room(block, block.link[active.to], once));
    bool all = false;
    if constexpr (P::kWaitsInside) {
      const bool ends = (active.from == kNobody || active.to == kNobody) &&
                        active.bytes - active.done == next_bytes(block, active, false);
      all = warp_ballot(room && (alone || ends)) == unfinished;
    }
    const bool goes = room && (all || active.from == kNobody || has_arrived<P>(block, block.link[active.from], once));
    ready = warp_ballot(goes);
    if (ready != 0 || !waits) break;
    const std::uint32_t waiting = warp_ballot(claimed);
    warp_sync();
    if (warp_any(lane == 0 && !await_any<P>(block, moves, waiting, false))) return false;
  }
  warp_sync();
  cut_round(block, round, moves, ready);
  return true;
}

// By all threads: slices side by side, by as many groups of warps, or one after the other. False: this thread gave up.
template <class P>
RONDO_DEVICE bool move_round(const FifoBlock& block, const Round& round) {
  const unsigned roles = block_threads() < kThreadsWithRoles ? 0 : kRoleThreads;
  if (thread_index() < roles) return true;
  Crew crew{thread_index() - roles, block_threads() - roles};
  if (round.slices == 1) return P::move(block, round.slice[0], crew);
  unsigned group = 0, groups = 1;
  if (round.side_by_side) {
    const unsigned warps = crew.threads / 32;
    groups = round.slices < warps ? round.slices : warps;
    crew.threads = warps / groups * 32;
    group = crew.thread / crew.threads;
    crew.thread -= group * crew.threads;
    if (group >= groups) return true;
  }
  for (unsigned i = group; i < round.slices; i += groups) {
    if (!P::move(block, round.slice[i], crew)) return false;
  }
  return true;
}

RONDO_DEVICE Mailbox& peer_mailbox(const FifoBlock& block, int peer) { return mailbox_at(block.link[peer].theirs); }

// By all threads, after a round has been moved and a barrier. Posts are not the first warp's, since a release waits for
// all that came before it. What has been received is stored in this rank's memory, which the peer does not read: the
// credit comes after loads.
template <class P>
RONDO_DEVICE void publish_round(const FifoBlock& block, const Round& round) {
  const unsigned thread = thread_index(), poster = block_threads() > 32 ? 32 : 0;
  if (thread < round.slices) {
    const Slice& slice = round.slice[thread];
    if (slice.from_slot != nullptr) give_credit(&peer_mailbox(block, slice.from).freed, slice.from_step + 1);
  }
  if (thread - poster < round.slices) {
    const Slice& slice = round.slice[thread - poster];
    if (slice.to_slot != nullptr) P::post(&peer_mailbox(block, slice.to).posted, slice.to_step);
  }
}

// By all threads: moves that thread 0 has filled, and that may be over one link, keep their order.
RONDO_DEVICE void order_moves(FifoBlock& block, int moves) {
  const int lane = static_cast<int>(thread_index());
  if (lane < 32) warp_sync();
  if (lane >= moves) return;
  Active& active = block.active[lane];
  for (int i = 0; i < lane; ++i) {
    const Active& earlier = block.active[i];
    const bool same =
        (active.to != kNobody && active.to == earlier.to) || (active.from != kNobody && active.from == earlier.from);
    if (same) active.behind |= std::uint32_t{1} << i;
  }
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

// By all threads, after the first warp has filled `moves` actives; until all are finished, or the block fails. Three
// rounds in turn: one is moved, one is being chosen, and of the one before some are still to be told.
template <class P>
RONDO_DEVICE_CALL void progress(FifoBlock& block, int moves) {
  const unsigned thread = thread_index();
  const bool chooses = thread < 32;
  if (chooses) warp_sync();
  int turn = chooses ? block.turn : 0;
  for (bool chosen = false;;) {
    if (!chosen) {
      if (block_or(chooses && !choose_round<P>(block, block.round[turn], moves, true))) break;
      turn = block.turn;
      RONDO_STAMP(chosen);
    }
    Round& round = block.round[turn];
    if (round.slices == 0) return block_sync();  // or the next step's first round is written while others look here
    const bool last = round.last;
    turn = turn == 2 ? 0 : turn + 1;
    if (chooses && round.goes_on) {
      choose_round<P>(block, block.round[turn], moves, false);
      if (thread == 0) round.is_followed = block.round[turn].slices != 0;
    }
    if (block_or(!move_round<P>(block, round))) break;
    RONDO_STAMP(moved);
    if (thread == 0) block.turn = turn;
    publish_round<P>(block, round);
    RONDO_STAMP(credited);
    if (last) return;
    chosen = round.is_followed;
  }
  if (thread == 0) block.failed = true;
  block_sync();
}

// One step of a fold from every peer: what `slice` says of this rank, of the others in rank order. By all threads.
template <class P>
RONDO_DEVICE_CALL void fold_step(FifoBlock& block, const FoldSlice& slice) {
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
        give_credit(&peer_mailbox(block, peer).freed, block.source[peer].step + 1);
      }
      RONDO_STAMP(credited);
      return;
    }
  }
  if (thread_index() == 0) block.failed = true;
  block_sync();
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
