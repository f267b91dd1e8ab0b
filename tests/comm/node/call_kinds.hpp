// SPDX-License-Identifier: Apache-2.0
// Collectives of ordinary memory as rows: how each is called, its buffers, and what must be in the one that receives.
#pragma once
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::test::call_kinds {

inline constexpr int kRoot = 1, kUntouched = -1;
inline constexpr std::size_t kCount = 10'003;  // elements of a block, so that a broadcast is long enough
inline std::size_t block_count = kCount;       // in this process

// One kind of call, often: its buffers, and what must be at an element of the receive buffer.
struct Kind {
  std::string_view name;
  std::size_t send_blocks, recv_blocks;  // 0: as many as ranks
  std::function<void(Communicator&, std::span<const int>, std::span<int>)> run;
  std::function<int(int rank, int world, int call, std::size_t at)> expected;  // -1: untouched
};

const std::vector<Kind>& all();
const Kind& of(std::string_view name);
// Apart, since they are of the kinds of calls that others are, of which the ways' times are known.
const std::vector<Kind>& in_place();
// All_to_all_v, apart, since ranks that say where their blocks lie do not try both ways.
const Kind& counted();

// What the rank brings in that call, at that element of its send buffer.
inline int value(int rank, int call, std::size_t at) { return static_cast<int>(at) * 31 + rank * 7 + call; }

// Of one rank. They begin `shift` elements behind where their memory does.
class Buffers {
 public:
  Buffers(const Kind& kind, int world, std::size_t shift = 0)
      : shift_(shift),
        send_(elements(kind.send_blocks, world) + shift),
        recv_(elements(kind.recv_blocks, world) + shift) {}
  std::span<int> send() { return std::span(send_).subspan(shift_); }
  std::span<int> recv() { return std::span(recv_).subspan(shift_); }

 private:
  static std::size_t elements(std::size_t blocks, int world) {
    return (blocks == 0 ? static_cast<std::size_t>(world) : blocks) * block_count;
  }
  std::size_t shift_;
  std::vector<int> send_, recv_;
};

}  // namespace rondo::test::call_kinds
