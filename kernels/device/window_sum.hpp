// SPDX-License-Identifier: Apache-2.0
// What host code and the kernels for sums over windows share: the argument of a launch, and the plan of an operation,
// which the host makes. A plan needs no word of a peer; what peers have to say is where their buffers lie, and that
// fits into one line.
#pragma once
#include "kernels/device/push.hpp"
#include "kernels/device/window_table.hpp"

namespace rondo::kernels::device {

enum class WindowSum : std::uint8_t { f32, f16, bf16 };
inline constexpr int kWindowSumCount = 3;

// Where a buffer lies, in 46 bits: the window below, bytes from its start above.
inline constexpr unsigned kPlaceBits = 46, kWindowBits = 6;
inline constexpr std::uint64_t kNoPlace = (std::uint64_t{1} << kPlaceBits) - 1;  // in no window, or too far to say
static_assert(kMaxWindows <= 1 << kWindowBits);
constexpr std::uint64_t place_of(std::int32_t window, std::uint64_t offset) {
  if (window < 0 || offset >= kNoPlace >> kWindowBits) return kNoPlace;
  return offset << kWindowBits | static_cast<std::uint32_t>(window);
}

struct WindowSumOperation {
  Operation general;         // as the general kernel would take it
  std::uint64_t hash;        // of the signature, without the sequence
  std::uint64_t sent, kept;  // places of the input and of the output, for others; kNoPlace: staged
  // The message in vectors of 16 bytes, the last of them maybe shorter, is cut into pieces, which blocks have in turn:
  // one each, or one for each rank, whose piece that is. The first `longer` pieces are one vector longer than
  // `vectors`.
  std::uint64_t bytes, vectors;
  std::uint32_t longer;
  std::uint32_t pieces;  // of a block
};

struct WindowSumLaunch {
  const DeviceTeam* team;
  std::uint64_t timeout_ns;  // from the first time a thread looks at the clock
  RegionHeader* header;      // own
  std::int32_t rank, ranks, operations;
  std::uint64_t guarded = 0;     // as Launch's
  Opening* openings[kMaxRanks];  // of every rank, as mapped here
  WindowSumOperation operation[kMaxOperations];
};
static_assert(sizeof(WindowSumLaunch) <= 4096);

// Which kernel runs it; -1: the general one.
constexpr int window_sum_for(Pattern pattern, DataType dtype, ReduceOp::Kind op) {
  if (pattern != Pattern::all_reduce || op != ReduceOp::sum) return -1;
  if (dtype == DataType::f32) return static_cast<int>(WindowSum::f32);
  if (dtype == DataType::f16) return static_cast<int>(WindowSum::f16);
  return dtype == DataType::bf16 ? static_cast<int>(WindowSum::bf16) : -1;
}

// Of an operation of the general kernel, with a message of `bytes`, among `ranks`.
constexpr WindowSumOperation make_window_sum(const Operation& of, std::uint64_t bytes, int ranks) {
  constexpr std::uint64_t kVectorBytes = 16;
  const bool in_parts = kWindowAlgorithms[of.algorithm].cut == Cut::parts;
  // In place, one_shot would overwrite what others still read.
  const bool shares_input = in_parts || of.input != of.output;
  WindowSumOperation sum{.general = of,
                         .hash = hash_of(of.signature),
                         .sent = shares_input ? place_of(of.send_window, of.send_offset) : kNoPlace,
                         .kept = in_parts ? place_of(of.recv_window, of.recv_offset) : 0,
                         .bytes = bytes,
                         .vectors = 0,
                         .longer = 0,
                         .pieces = in_parts ? static_cast<std::uint32_t>(ranks) : 1};
  if (sum.sent == kNoPlace) sum.general.send_window = -1;
  if (sum.kept == kNoPlace) sum.general.recv_window = -1;
  const std::uint64_t all = (bytes + kVectorBytes - 1) / kVectorBytes;
  const std::uint64_t pieces = std::uint64_t{of.channels} * sum.pieces;
  sum.vectors = all / pieces;
  sum.longer = static_cast<std::uint32_t>(all % pieces);
  return sum;
}

}  // namespace rondo::kernels::device
