// SPDX-License-Identifier: Apache-2.0
// Where the same-numbered blocks of all ranks meet: each writes its arrival into every peer's region and waits for
// theirs. Meetings are counted by epochs that outlive the kernel; a line is written again two epochs later, and by then
// everybody has read it, because everybody always waits for everybody.
#pragma once
#include "kernels/algorithms/ranges.hpp"
#include "kernels/device/wait.cuh"
#include "kernels/device/window_move.cuh"
#include "kernels/device/window_table.hpp"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

struct WindowPlan {  // of an operation, by one thread: the same for all
  Reads reads;
  Writes writes;
  Cut cut;
  int rank, ranks, root;
  unsigned element;          // bytes
  std::uint64_t half_bytes;  // of this block's staging area
  std::uint64_t step;        // elements of a round, of each block where the message is cut into blocks
  unsigned rounds;           // of all ranks
  WindowArithmetic arithmetic;
  bool staged;         // somebody's buffer is in no window: all ranks go in rounds
  bool ends_together;  // a second meeting, after the moves
};

// This block's share of one rank's block of a buffer; elements.
struct BlockShare {
  std::uint64_t start;  // of the rank's block, from the start of the buffer
  Range share;          // from the start of the rank's block
};

struct WindowBlock {  // in shared memory; the tables: entry p by the thread that meets rank p
  Patience patience;
  Operation operation;  // of the launch: kept here, the kernel's argument would be kept in registers
  WindowPlan plan;
  std::uint64_t epoch;     // of the latest meeting before the operation
  std::uint64_t sequence;  // of the latest collective before this kernel
  BlockShare sends[kMaxRanks], receives[kMaxRanks];
  const std::byte* input[kMaxRanks];  // of each rank, for this rank to read; null: staged
  std::byte* output[kMaxRanks];       // of each rank; null: staged
  double factor[kMaxRanks];
  std::uint64_t rounds[kMaxRanks];
  const std::byte* source[kMaxRanks];  // of the moves in progress
  std::byte* target[kMaxRanks];
  std::uint64_t bytes[kMaxRanks];
};

struct ArrivalWords {
  u64x2 pair[4];
};
static_assert(sizeof(ArrivalWords) == sizeof(Arrival));

RONDO_DEVICE Arrival* arrival_at(const DeviceTeam& team, int at, std::uint64_t epoch, int from) {
  std::byte* const region = reinterpret_cast<std::byte*>(team.headers[at]);
  return reinterpret_cast<Arrival*>(region + team.layout.arrival_offset(epoch, static_cast<int>(block_index()), from));
}

// The fields, then the epoch.
RONDO_DEVICE void post_arrival(Arrival* line, const Arrival& arrival) {
  const auto words = __builtin_bit_cast(ArrivalWords, arrival);
  auto* const pairs = reinterpret_cast<std::byte*>(line);
  store<std::uint64_t>(&line->key, arrival.key);
  RONDO_UNROLL
  for (unsigned i = 1; i < 4; ++i) store<u64x2>(pairs + i * sizeof(u64x2), words.pair[i]);
  store_release(&line->epoch, arrival.epoch);
}

// What a rank has done since it met the others before. Where it has but read their memory, and nobody reads what it has
// written, its arrival is a credit. What it loaded it has used before the barrier, so nothing that they write once they
// have seen the arrival can be what it loaded; a fence would only make known what nobody looks for. Its own output is
// read by others after a meeting that begins an operation, which releases it, or after the kernel.
enum class Since : unsigned char { read, wrote };

RONDO_DEVICE bool wait_for_arrival(const WindowBlock& block, int peer, std::uint64_t epoch, Since theirs) {
  const Patience& patience = block.patience;
  const std::uint64_t* const word = &arrival_at(*patience.team, patience.team->rank, epoch, peer)->epoch;
  const auto is_there = [epoch](std::uint64_t seen) { return seen == epoch; };
  return theirs == Since::read ? wait_for_credit(patience, word, peer, epoch, patience.operation, is_there)
                               : wait_for(patience, word, peer, epoch, patience.operation, is_there);
}

// The other blocks leave it to block 0 to say what differs: by then the peer has written its history.
RONDO_DEVICE_CALL void refuse_arrival(const WindowBlock& block, int peer, std::uint64_t epoch) {
  if (block_index() == 0) {
    give_up_mismatch(block.patience, peer, epoch, block.patience.operation, DeviceSignature{});
    return;
  }
  const Arrival* const line = arrival_at(*block.patience.team, block.patience.team->rank, epoch, peer);
  wait_for(block.patience, &line->epoch, peer, epoch, block.patience.operation, [](std::uint64_t) { return false; });
}

// The start of an operation, by all threads; what they wrote before is seen by those who have met them. `wrote`: some
// of it since the latest barrier. Fills the tables; another barrier must follow before they are written again.
// `offset_for(peer)`: bytes from the input's start to what that peer reads. False: drain.
template <class F>
RONDO_DEVICE bool meet_first(WindowBlock& block, const Arrival& own, bool wrote, F&& offset_for) {
  const DeviceTeam& team = *block.patience.team;
  bool met = true;
  if (wrote) block_sync();
  RONDO_NO_UNROLL
  for (int peer = static_cast<int>(thread_index()); peer < team.world_size; peer += static_cast<int>(block_threads())) {
    if (peer == team.rank) continue;
    Arrival arrival = own;
    arrival.send_offset += offset_for(peer);
    post_arrival(arrival_at(team, peer, own.epoch, team.rank), arrival);
  }
  RONDO_STAMP(posted);
  RONDO_NO_UNROLL
  for (int peer = static_cast<int>(thread_index()); peer < team.world_size; peer += static_cast<int>(block_threads())) {
    Arrival theirs = own;
    if (peer != team.rank) {
      if (!wait_for_arrival(block, peer, own.epoch, Since::wrote)) {
        met = false;
        break;
      }
      const Arrival* const line = arrival_at(team, team.rank, own.epoch, peer);
      ArrivalWords words;
      RONDO_UNROLL
      for (unsigned i = 1; i < 4; ++i) {
        words.pair[i] = load<u64x2>(reinterpret_cast<const std::byte*>(line) + i * sizeof(u64x2));
      }
      words.pair[0] = {own.epoch, load<std::uint64_t>(&line->key)};
      theirs = __builtin_bit_cast(Arrival, words);
      if (theirs.key != own.key) {
        refuse_arrival(block, peer, own.epoch);
        met = false;
        break;
      }
    }
    block.input[peer] = theirs.send_window < 0 ? nullptr : team.windows[theirs.send_window][peer] + theirs.send_offset;
    block.output[peer] = theirs.recv_window < 0 ? nullptr : team.windows[theirs.recv_window][peer] + theirs.recv_offset;
    block.factor[peer] = theirs.factor;
    block.rounds[peer] = theirs.rounds;
  }
  RONDO_STAMP(seen);
  return !block_or(!met);
}

// Later in an operation: only that everybody is there. `theirs`: what this rank looks for, maybe less than they say.
RONDO_DEVICE bool meet_again(const WindowBlock& block, std::uint64_t epoch, Since own, Since theirs) {
  const DeviceTeam& team = *block.patience.team;
  bool met = true;
  block_sync();
  RONDO_NO_UNROLL
  for (int peer = static_cast<int>(thread_index()); peer < team.world_size; peer += static_cast<int>(block_threads())) {
    if (peer == team.rank) continue;
    std::uint64_t* const word = &arrival_at(team, peer, epoch, team.rank)->epoch;
    if (own == Since::read) {
      give_credit(word, epoch);
    } else {
      store_release(word, epoch);
    }
  }
  RONDO_STAMP(posted_again);
  RONDO_NO_UNROLL
  for (int peer = static_cast<int>(thread_index()); peer < team.world_size && met;
       peer += static_cast<int>(block_threads())) {
    if (peer != team.rank) met = wait_for_arrival(block, peer, epoch, theirs);
  }
  met = !block_or(!met);
  RONDO_STAMP(met_again);
  return met;
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
