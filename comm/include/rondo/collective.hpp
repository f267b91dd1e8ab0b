// SPDX-License-Identifier: Apache-2.0
// The collectives as data: one row each. A Call is one invocation, before anything is checked or chosen.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include <rondo/dtype.hpp>
#include <rondo/extent.hpp>
#include <rondo/reduce_op.hpp>

namespace rondo {

using Stream = void*;  // a cudaStream_t; null: the device's default; ignored on the CPU

// The collectives; _v: with blocks of different lengths. `recv` and `send` are messages between two ranks.
enum class Collective : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  all_gather_v,
  gather_v,
  scatter_v,
  all_to_all_v,
  send,
  recv,
  barrier
};
inline constexpr int kCollectiveCount = 15;  // of Collective

// The peer of a receive that takes a message from whoever has sent one. No arithmetic on ranks leads to it.
inline constexpr int kAnySource = std::numeric_limits<int>::min();

// What a collective is. What the library must know of its buffers comes from here alone.
struct CollectiveRow {
  Collective collective;  // the row's index
  std::string_view name;  // "all_reduce"
  Extent send;            // size of the input, at ranks where it is used
  Extent recv;            // size of the output, likewise
  bool send_at_root;      // the send buffer is used at the root alone
  bool recv_at_root;      // the receive buffer is used at the root alone
  bool rooted;            // Call::root counts
  bool reduces;           // Call::op counts
  // busbw = algbw * factor(n); algbw counts the larger buffer of a rank.
  double (*busbw_factor)(int world_size);

  // Between two ranks: Call::root is the peer.
  constexpr bool is_message() const { return (send == Extent::none) != (recv == Extent::none); }
  // Every rank has a block for every other: in place it would overwrite what it has not sent, so its buffers are two.
  constexpr bool has_block_per_pair() const { return has_block_per_rank(send) && has_block_per_rank(recv); }
  // Every rank's counts are its own, and no other rank knows them.
  constexpr bool has_own_counts() const { return send == Extent::counts && recv == Extent::counts; }
  // Every rank passes the same counts.
  constexpr bool has_common_counts() const { return (send == Extent::counts) != (recv == Extent::counts); }
};

// All rows, by Collective.
RONDO_API const std::array<CollectiveRow, kCollectiveCount>& collective_table();
namespace detail {
[[noreturn]] RONDO_API void throw_no_collective(Collective c);
}
// Error(invalid_argument) for a value that is none of them.
inline const CollectiveRow& row_of(Collective c) {
  if (static_cast<int>(c) >= kCollectiveCount) [[unlikely]]
    detail::throw_no_collective(c);
  return collective_table()[static_cast<std::size_t>(c)];
}
inline std::string_view name_of(Collective c) {  // "all_reduce"
  return static_cast<int>(c) < kCollectiveCount ? row_of(c).name : "unknown collective";
}

// Buffers are the caller's and stay untouched by others until the call returns (async: until wait() returns;
// group: until end() returns; device memory: until the stream has passed it).
struct Call {
  Collective collective{};        // what to do
  const void* send = nullptr;     // this rank's input; null where the row says that it is not used
  void* recv = nullptr;           // this rank's output; likewise
  std::size_t count = 0;          // elements; see Extent. The _v forms: this rank's own part, from the counts
  DataType dtype = DataType::u8;  // of the elements, the same on every rank
  ReduceOp op = ReduceOp::sum;    // collectives that reduce
  int root = -1;                  // rooted collectives; the peer for send and recv, kAnySource for a recv from anyone
  std::span<const std::size_t> send_counts{};  // scatter_v at root, all_to_all_v
  std::span<const std::size_t> recv_counts{};  // all_gather_v, gather_v at root, all_to_all_v
  Stream stream = nullptr;                     // devices: where the call is enqueued
  std::chrono::milliseconds timeout{};         // of this call, at least 1; 0: the communicator's
  int tag = 0;                                 // send and recv, from 0: those of one tag belong together
  int* source = nullptr;  // recv: gets the rank that it came from, when it is done; null: nobody asks
};

}  // namespace rondo
