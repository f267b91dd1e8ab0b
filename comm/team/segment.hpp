// SPDX-License-Identifier: Apache-2.0
// The memory that the ranks of one node share: a failure record, a line per rank, the board where all of them meet,
// and two FIFOs per ordered pair, one for collectives and one of shorter slots for messages.
// Processes map a sealed memfd; ranks as threads use one anonymous mapping. Everything starts as zeroes, and every
// word has one writer, named here, but those of claims. The segment owns nothing; its creator keeps the mapping.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/call/signature.hpp"
#include "comm/team/culprits.hpp"

namespace rondo::comm {

inline constexpr std::size_t kLine = 128;  // two cache lines: the neighbour prefetch never makes ranks share
inline constexpr std::uint64_t kHistory = 32;

// First failure wins; readers wait for `state` to become kSet. Meanwhile it says which rank writes.
struct FailureRecord {
  static constexpr std::uint32_t kNone = 0, kSet = 1, kWriters = 2;
  static constexpr std::uint32_t writing(int rank) { return kWriters + static_cast<std::uint32_t>(rank); }
  static constexpr int writer(std::uint32_t state) { return static_cast<int>(state - kWriters); }
  alignas(kLine) std::atomic<std::uint32_t> state;
  std::int32_t code;
  Culprits culprits;
  std::array<char, 500> sentence;
};

// One entry of a rank's history; the rank writes, anybody reads. sequence 0 while being rewritten.
struct HistoryEntry {
  std::atomic<std::uint64_t> sequence, count, kind, shape;
};

// A rank's latest collectives; the rank writes, anybody reads.
struct CallHistory {
  static constexpr std::uint64_t kClosed = ~std::uint64_t{0};  // of `arrived`: nobody knows any more
  std::atomic<std::uint64_t> arrived;                          // sequence of the latest that it has entered
  std::array<HistoryEntry, kHistory> entries;
};

// A rank's part in monitored barriers (call/monitored_barrier.hpp). The rank writes; of the verdicts, rank 0 alone.
inline constexpr std::uint64_t kMostAttending = 1 << 20;
struct Attendance {
  static constexpr std::size_t kVerdicts = 8;  // a rank that comes later than that many is told of none
  std::atomic<std::uint64_t> entered;          // twice the latest that it has entered; 1 more once it no longer waits
  std::array<std::atomic<std::uint64_t>, kVerdicts> verdicts;  // of the latest
  std::atomic<std::uint64_t>& verdict(std::uint64_t barrier) { return verdicts[barrier % kVerdicts]; }
};

struct RankLine {
  alignas(kLine) std::atomic<std::uint32_t> sleeping;  // the rank: 1 before it sleeps on its doorbell; peers read
  std::atomic<std::uint32_t> departed;                 // the rank, once: it has destroyed its communicator
  std::atomic<std::uint32_t> lost;                     // any monitor, once: its process is gone
  std::atomic<std::uint32_t> unmapped;                 // the rank, once: it maps no peer's device memory any more
  std::atomic<std::uint32_t> fences_all;               // the rank, once: before it sleeps, every core fences
  std::atomic<std::uint32_t> core;                     // the rank: 1 + the core where it came or waits
  std::atomic<std::uint32_t> sleeping_in_messages;     // as `sleeping`, on the doorbell of its messages
  std::atomic<std::uint32_t> keeps_apart;              // the rank: see Team::keep_apart
  // What no peer reads until something fails: lines that they read in every call would have to be fetched back.
  alignas(kLine) std::atomic<std::uint32_t> touching;  // the rank: 1 while it reads or writes its peers' own buffers
  CallHistory calls;
  // Those enqueued for its kernels, which count by themselves; closed when a graph captures one, for replays count too.
  alignas(kLine) CallHistory device_calls;
  // Of these, calls that go by way of host memory unless a graph captures them: see Team::note_device_way. Twice the
  // number, and 1 more where one does.
  std::array<std::atomic<std::uint64_t>, kHistory> device_ways;
  alignas(kLine) Attendance attendance;
  std::atomic<std::uint64_t> waits_in;  // the rank: the collective that it has waited in for long, 0: none
  std::atomic<std::uint64_t> alone_in;  // the rank: the same, while no other thread of its process may call anything
  std::atomic<std::uint64_t> message;   // the rank: the message that it has waited for for long (PackedMessage), or 0
  std::atomic<std::uint64_t> aborted;   // the rank: 1 + its latest when its process aborted any communicator, or 0
  std::atomic<std::uint32_t> given_up;  // the rank, before it leaves: see Team::give_up
};

// What precedes the bytes of every step on every link, in shared memory and on a socket.
struct StepHeader {
  Signature signature;
  std::uint64_t step = 0;  // counted from the life of the link
  std::uint64_t bytes = 0;
};
static_assert(sizeof(StepHeader) == 56);

struct Fifo {
  alignas(kLine) std::atomic<std::uint64_t> posted;  // the sender: steps published, release
  std::atomic<std::uint64_t> device_sent;            // the sender: messages that it has enqueued for its kernels
  alignas(kLine) std::atomic<std::uint64_t> freed;   // the receiver: steps it has done with, release
  std::atomic<std::uint64_t> device_received;        // the receiver: those that it has enqueued
};

// A rank's arrival at a meeting on the board (node/meeting/board.hpp), and the bytes that it brings, when they are few;
// two per rank, used in turn. The rank writes; of two ranks, whoever has read it last.
struct Arrival {
  static constexpr std::size_t kPayload = 48, kBody = 16 << 10;

  alignas(kLine) std::atomic<std::uint64_t> meeting;  // release, after all that follows: counted from 1
  std::uint64_t key;                                  // hash of all signatures up to this meeting
  std::array<std::byte, kPayload> payload;            // in the cache line of its flag
  alignas(kLine) std::array<std::byte, kBody> body;   // what exceeds the payload, whole: vectors stay within lines
};

// How far a rank is with the chunks that it exchanges on the board (node/rings/flow.hpp). The rank writes.
struct ProgressLine {
  static constexpr std::size_t kStages = 3;
  alignas(kLine) std::array<std::atomic<std::uint64_t>, kStages> done;  // chunks of all calls so far
};

// How far apart cores are (node/memory/store_choice.hpp). The rank writes both.
struct DistanceLine {
  alignas(kLine) std::atomic<std::uint64_t> written;  // grows; peers time how long it takes to read
  alignas(kLine) std::atomic<std::uint32_t> far;      // 1: what peers wrote takes as long as from another cache
};

// Who does which piece of a work that all share (node/meeting/claims.hpp). Any rank claims; the one that has claimed
// says done. Few pieces have lines of their own.
struct ClaimLines {
  static constexpr std::size_t kPieces = 16, kLines = 4;
  struct Line {
    alignas(kLine) std::array<std::atomic<std::uint64_t>, kPieces / kLines> pieces;
  };
  std::array<Line, kLines> lines;
  std::atomic<std::uint64_t>& piece(std::size_t index) { return lines[index % kLines].pieces[index / kLines]; }
};

// Sizes every rank agrees on at init. slots >= slices per chunk + 1, and never fewer than 2, or fused rings hang.
struct FifoShape {
  std::uint64_t slots = 8;
  std::uint64_t slice_bytes = 128 << 10;
  std::uint64_t ring_bytes = 6 << 20;  // of the board, per rank
  std::uint64_t slices_per_chunk() const { return slots / 2; }
};

// What a pair of ranks has two of, so that a message never stands in a collective's way: links, and what wakes who
// waits for them.
enum class Lane : std::uint8_t { collectives, messages };
inline constexpr std::size_t kLanes = 2;

// Of the FIFOs of messages: those that travel whole fit a slot.
FifoShape shape_of_messages(FifoShape of_collectives);

class Segment {
 public:
  Segment() = default;
  Segment(std::byte* base, int local_size, FifoShape shape);
  static std::size_t bytes(int local_size, FifoShape shape);
  static std::size_t bytes_without_messages(int local_size, FifoShape shape);
  Segment of_messages() const;  // the same memory, whose FIFOs and slots are those of messages

  FailureRecord& failure() const { return *reinterpret_cast<FailureRecord*>(base_); }
  RankLine& line(int local_rank) const {
    return reinterpret_cast<RankLine*>(base_ + sizeof(FailureRecord))[local_rank];
  }
  Fifo& fifo(int from, int to) const;
  // Slot memory: a StepHeader in its first line, the payload kLine bytes further on.
  std::byte* slot(int from, int to, std::uint64_t step) const;
  Arrival& arrival(int local_rank, std::uint64_t meeting) const;
  ProgressLine& progress(int local_rank) const;
  DistanceLine& distance(int local_rank) const;
  ClaimLines& claims() const;
  std::byte* ring(int local_rank) const;
  FifoShape shape() const { return lane_shape_; }
  int local_size() const { return local_size_; }

 private:
  std::size_t fifo_offset(int from, int to) const;
  std::byte* base_ = nullptr;
  int local_size_ = 0;
  FifoShape shape_{}, lane_shape_{};  // of collectives, and of the FIFOs here
  std::size_t first_fifo_ = 0;        // offset
};

inline void write_history(CallHistory& history, const Signature& s) {
  HistoryEntry& entry = history.entries[s.sequence % kHistory];
  entry.sequence.store(0, std::memory_order_relaxed);
  entry.count.store(s.count, std::memory_order_release);  // release: no reader sees it under the old sequence
  entry.kind.store(kind_of(s), std::memory_order_release);
  entry.shape.store(s.shape, std::memory_order_release);
  entry.sequence.store(s.sequence, std::memory_order_release);
  history.arrived.store(s.sequence, std::memory_order_release);
}
// The rank's entry of that sequence; false when it has none (not yet, or overwritten long ago).
bool read_history(const CallHistory& history, std::uint64_t sequence, Signature& out);

}  // namespace rondo::comm
