// SPDX-License-Identifier: Apache-2.0
// What host code and CUDA kernels share: plain structs, offsets, and who writes which word. No device code.
// A rank has one region of device memory, zeroed before any peer sees it, which its peers map. Every link is a FIFO
// in the receiver's region; a step is one slot, counted from the life of the link and never reset.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rondo::kernels::device {

enum class Protocol : std::uint8_t { simple, ll, ll128 };
inline constexpr int kProtocolCount = 3;

inline constexpr int kMaxRanks = 64;    // of a communicator on devices
inline constexpr int kMaxBlocks = 64;   // of one launch; channel c is block c
inline constexpr int kMaxWindows = 64;  // registered at the same time; window 0 is the staging area
inline constexpr int kMaxThreads = 512;
inline constexpr std::size_t kLine = 128;
inline constexpr std::uint64_t kHistory = 32;
inline constexpr std::uint32_t kPushLines = 512;  // of 16 bytes, 8 of them data: what a push kernel's block takes
inline constexpr std::uint32_t kPushSlotBytes = 16 * kPushLines;

// What the ranks of a collective must agree on; comm packs its own into it. sequence 0: a message or not known.
struct DeviceSignature {
  std::uint64_t sequence, count, kind, shape;
};

// ---- the region: what peers map ----

// Beside the slots of each (peer, channel, protocol). The same offset in both ranks' regions, by the other's rank.
struct Mailbox {
  alignas(kLine) std::uint64_t posted;  // the peer writes, release: steps it has put into my slots (Simple alone)
  alignas(kLine) std::uint64_t freed;   // the peer writes, as credit: steps of mine that it has taken out of its slots
  alignas(kLine) std::uint64_t sent;    // mine alone, from one kernel to the next: steps I have sent
  std::uint64_t received;               // mine alone: steps I have received
  std::uint64_t seen_freed;             // mine alone: `freed` as I last saw it
};

// In front of the data of every Simple slot. LL and LL128 carry `key` in their first line. A step that refers says
// where in a window of the sender its bytes are, instead of carrying them.
struct alignas(64) SlotHeader {
  DeviceSignature signature;
  std::uint64_t step, bytes;
  std::uint64_t offset = 0;  // bytes from the window's start
  std::int64_t window = -1;  // -1: the bytes are in the slot
};
static_assert(sizeof(SlotHeader) == 64);

// One rank's arrival at a window operation, written into every peer's region by the block of the same number.
struct Arrival {
  alignas(64)
      std::uint64_t epoch;  // last, release: of the block; the line is of the older epoch of equal parity until then
  std::uint64_t key;        // of the operation's signature
  std::uint64_t send_offset, recv_offset;
  std::int32_t send_window, recv_window;  // -1: the buffer is in no window
  double factor;                          // of premultiplied_sum: readers of the input multiply
  std::uint64_t rounds;                   // that this rank's blocks need where some rank's buffer is in no window
};
static_assert(sizeof(Arrival) == 64);

// One collective of a rank. It says by its key that it is whole: its words are written in no order, so that nobody
// waits for a fence.
struct HistoryEntry {
  alignas(64) DeviceSignature signature;
  std::uint64_t key;  // of the signature, turned over
};

// One rank's way through a sum over windows: the line by which its block opens it, and the block's epoch when it is
// done.
struct Opening {
  alignas(16) std::uint64_t line[2];
  alignas(16) std::uint64_t closed;  // as a credit where it has only read
};
static_assert(sizeof(Opening) == 32);

// At the start of a region. Private words are the owner's alone, carried from one kernel to the next.
struct RegionHeader {
  alignas(kLine) std::uint64_t failed;                      // private: not 0: a kernel gave up; later ones do nothing
  alignas(kLine) std::uint64_t block_sequence[kMaxBlocks];  // private: of the latest collective; see sequence.cuh
  alignas(kLine) std::uint64_t block_epoch[kMaxBlocks];     // private: arrivals of the block
  alignas(kLine) std::uint32_t push_epoch[kMaxBlocks];      // private: of the block, in the push kernels
  alignas(kLine) std::uint64_t opening_epoch[kMaxBlocks];   // private: openings of the block
  alignas(kLine) HistoryEntry history[kHistory];            // by block 0; peers read
};

struct FifoShape {
  std::uint32_t slots = 0;       // a power of two, 2 or more; see LinkLayout::is_sound. 0: the protocol is left out
  std::uint32_t slot_bytes = 0;  // memory of one slot, header and flags included; a multiple of 512
};

// Bytes of data that a slot carries.
constexpr std::size_t slot_capacity(Protocol protocol, std::size_t slot_bytes) {
  switch (protocol) {
    case Protocol::simple:
      return slot_bytes - kLine;
    case Protocol::ll:  // lines of {data, flag, data, flag}; the first one is the key's
      return slot_bytes / 2 - 8;
    case Protocol::ll128:  // lines of 15 words and a flag; the first word is the key's
      return slot_bytes / 128 * 120 - 8;
  }
  return 0;
}

// Where everything lies in a region. Equal on all ranks of a communicator.
struct RegionLayout {
  int world_size = 1, channels = 1, blocks = 1;
  int push_blocks = 0;  // that have inboxes; 0: the push kernels are left out
  FifoShape fifo[kProtocolCount];

  constexpr std::size_t arrivals_offset() const { return align(sizeof(RegionHeader)); }
  // [epoch parity][block][rank]
  constexpr std::size_t arrival_offset(std::uint64_t epoch, int block, int rank) const {
    const auto index = (static_cast<std::size_t>(epoch & 1) * as_size(blocks) + as_size(block)) * as_size(world_size);
    return arrivals_offset() + (index + as_size(rank)) * sizeof(Arrival);
  }
  constexpr std::size_t openings_offset() const { return align(arrival_offset(0, 2 * blocks, 0)); }
  // [block][epoch parity][rank]
  constexpr std::size_t openings_bytes() const { return 2 * as_size(blocks) * as_size(world_size) * sizeof(Opening); }
  constexpr std::size_t inbox_offset() const { return align(openings_offset() + openings_bytes()); }
  // [push block][epoch parity][rank]
  constexpr std::size_t inbox_bytes() const { return 2 * as_size(push_blocks) * as_size(world_size) * kPushSlotBytes; }
  constexpr std::size_t links_offset() const { return align(inbox_offset() + inbox_bytes()); }
  constexpr std::size_t link_bytes(Protocol protocol) const {
    const FifoShape& shape = fifo[static_cast<int>(protocol)];
    return sizeof(Mailbox) + std::size_t{shape.slots} * shape.slot_bytes;
  }
  constexpr std::size_t channel_bytes() const {
    return link_bytes(Protocol::simple) + link_bytes(Protocol::ll) + link_bytes(Protocol::ll128);
  }
  // The mailbox of the link with `peer`; its slots follow.
  constexpr std::size_t mailbox_offset(int peer, int channel, Protocol protocol) const {
    std::size_t offset = links_offset() + (as_size(peer) * as_size(channels) + as_size(channel)) * channel_bytes();
    if (protocol != Protocol::simple) offset += link_bytes(Protocol::simple);
    if (protocol == Protocol::ll128) offset += link_bytes(Protocol::ll);
    return offset;
  }
  constexpr std::size_t bytes() const { return mailbox_offset(world_size, 0, Protocol::simple); }

 private:
  static constexpr std::size_t align(std::size_t offset) { return (offset + kLine - 1) / kLine * kLine; }
  static constexpr std::size_t as_size(int value) { return static_cast<std::size_t>(value); }
};

// ---- host-visible memory: pinned, one page per rank ----

enum class FaultKind : std::uint32_t { none, aborted, timeout, mismatch, overlap };

struct Fault {
  std::uint32_t is_set;  // last, release; by the block that won Locks::fault
  FaultKind kind;
  std::int32_t peer;  // that was waited for, or that disagrees; -1: nobody
  std::int32_t channel;
  std::uint64_t step;  // of the link, or the epoch of an arrival
  Protocol protocol;   // simple too for window kernels
  bool window;
  DeviceSignature mine, theirs;  // theirs.sequence 0: not known
};

struct HostPage {
  // The host writes 1, or the block that wrote `fault`; kernels drain: they stop waiting and moving, and end.
  alignas(kLine) std::uint32_t abort;
  alignas(kLine) Fault fault;  // the first block of all that fails
  // Block 0 writes it after 10 ms of waiting where it is not `told`, that last and release; the host tells who is
  // missing, and then 0 again is the host's to write.
  alignas(kLine) std::uint32_t told;
  std::int32_t waiting_for;
  std::uint64_t waiting_since_ns;  // when its kernel began, by the device's clock
  DeviceSignature waiting;
  std::uint64_t still_waiting_ns;  // by the device's clock: again and again for as long as it waits
};

// ---- device memory, of one rank's kernels alone: words that their threads exchange. There are machines on which a
// device can load and store words of host memory and an exchange ends the kernel.

struct Locks {
  std::uint32_t fault;                // 1: a thread writes, or has written, the page's
  std::uint32_t waiting;              // 1: a thread writes for whom it waits
  std::uint32_t running[kMaxBlocks];  // 1: the block of a guarded launch runs
};

// ---- one rank's view; in its device memory, constant while kernels run but for `windows` ----

struct DeviceTeam {
  int rank, world_size;
  RegionLayout layout;
  // Where the two ends of the links with a peer live: mine, which it writes, and its own. Ranks of one node: the two
  // regions. Otherwise two areas of pinned memory, the other side of which is a proxy's.
  std::byte* mine[kMaxRanks];
  std::byte* theirs[kMaxRanks];
  // Of every rank; mine and theirs of this rank itself are its region. Null for ranks of other nodes: their links are
  // reached at the offsets of a region, but there is no header and there are no arrivals around them.
  RegionHeader* headers[kMaxRanks];
  std::byte* windows[kMaxWindows][kMaxRanks];  // as mapped here; null: none
  std::size_t staging_bytes;                   // of window 0
  HostPage* page;
  Locks* locks;
};

// ---- kernel arguments, by value ----

inline constexpr int kMaxOperations = 8;
inline constexpr int kMaxMessages = 32;
inline constexpr int kNoCounts = -1;

struct Operation {  // one collective
  const std::byte* input;
  std::byte* output;
  std::uint64_t count;        // as kernels::Work::count, over all channels
  double factor;              // of premultiplied_sum, this rank's own
  DeviceSignature signature;  // sequence 0: the kernel counts
  std::int32_t algorithm;     // a row of kAlgorithms; in window kernels of kWindowAlgorithms
  std::int32_t root;
  std::int32_t send_counts, recv_counts;  // index of the first in Launch::counts, one per rank; or kNoCounts
  std::uint8_t dtype, op;                 // DataType, ReduceOp::Kind
  bool reduces;
  std::uint8_t channels;  // the first blocks share it, so many on all ranks; further blocks of the launch skip it
  std::int32_t send_window, recv_window;   // window kernels: where input and output lie, -1: in none
  std::uint64_t send_offset, recv_offset;  // bytes from the window's start
};

struct Message {  // a send or a receive of a group; those of a launch progress together
  std::byte* data;
  std::uint64_t bytes;
  std::uint64_t key;          // of its signature
  std::uint64_t count, kind;  // its signature, for the slots' headers; sequence and shape are 0
  std::uint64_t offset = 0;   // of what is sent, from the start of `window`
  std::int32_t peer;
  std::int16_t window =
      -1;  // -1: it travels through slots; else steps refer to it, and the kernel ends when they are taken
  bool sends;
  std::uint8_t channels;  // as Operation::channels, equal at both ends
};

struct Launch {
  const DeviceTeam* team;
  std::uint64_t timeout_ns;  // from the kernel's start
  std::int32_t operations, messages;
  std::uint64_t guarded = 0;  // 1: a graph holds launches of this communicator, so that two may run at the same time
  Operation operation[kMaxOperations];
  Message message[kMaxMessages];
  std::uint64_t counts[2 * kMaxRanks];
};
static_assert(sizeof(Launch) <= 4096);

}  // namespace rondo::kernels::device
