// SPDX-License-Identifier: Apache-2.0
// A line of the push kernels, {data, flag, data, flag}, and what a thread does for which a line does not come. Both
// flags carry 15 bits of the block's epoch, so that either word is known to be of this epoch, and 16 bits of a hash of
// the sequence and the signature, so that each line says whether its sender does the same.
#pragma once
#include "kernels/device/push.hpp"
#include "kernels/device/wait.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

struct PushFlags {
  std::uint32_t first, second;
};

RONDO_DEVICE std::uint64_t push_key(const PushOperation& operation, std::uint64_t sequence) {
  return mix(operation.hash, sequence);
}
RONDO_DEVICE PushFlags push_flags(std::uint32_t epoch, std::uint64_t key) {
  const std::uint32_t number = (epoch & 0x7fffu) | 0x8000u;  // 0 is in fresh memory
  return {static_cast<std::uint32_t>(key) << 16 | number, (static_cast<std::uint32_t>(key) & ~0xffffu) | number};
}

RONDO_DEVICE u64x2 push_line(std::uint64_t word, PushFlags flags) {
  return {(word & 0xffffffffu) | std::uint64_t{flags.first} << 32, word >> 32 | std::uint64_t{flags.second} << 32};
}
RONDO_DEVICE std::uint64_t push_word(u64x2 line) { return (line.x & 0xffffffffu) | line.y << 32; }
RONDO_DEVICE bool has_come(u64x2 line, PushFlags flags) {
  return line.x >> 32 == flags.first && line.y >> 32 == flags.second;
}
// Both words are of this epoch, and of another call.
RONDO_DEVICE bool differs(u64x2 line, PushFlags flags) {
  const auto is_now = [&](std::uint64_t word) { return ((word >> 32 ^ flags.first) & 0xffffu) == 0; };
  return is_now(line.x) && is_now(line.y) && !has_come(line, flags);
}

// A line that short messages do not reach would keep its flags until they come round again after 2^15 epochs. So now
// and then, in an epoch of either parity, all lines of a place get flags.
inline constexpr std::uint32_t kPushRefreshEvery = 1u << 14;
RONDO_DEVICE bool is_refreshing(std::uint32_t epoch) { return epoch % kPushRefreshEvery < 2; }

// The peer does something else. Both ranks write their histories behind their lines, so the difference may show only
// after a while. The other blocks leave it to block 0 to say what it is, and wait for its abort.
RONDO_DEVICE_CALL void refuse_line(const Patience& patience, int peer, std::uint64_t epoch) {
  const DeviceTeam& team = *patience.team;
  const std::uint64_t sequence = patience.operation.sequence, began = timer_ns();
  DeviceSignature mine{}, theirs{};
  SpinAny spin;
  for (;;) {
    spin.begin();
    watch_history(own_header(team), sequence, spin);
    watch_history(*team.headers[peer], sequence, spin);
    if (block_index() == 0 && find_difference(team, peer, sequence, mine, theirs)) {
      return give_up(patience, FaultKind::mismatch, peer, epoch, mine, theirs);
    }
    if (block_index() == 0 && timer_ns() - began > kLongWaitNs) {
      return give_up(patience, FaultKind::mismatch, peer, epoch, patience.operation, DeviceSignature{});
    }
    if (!spin.pause(abort_word(patience))) continue;
    if (look_up(patience, peer, epoch, patience.operation, kPublished | 2) == kGaveUp) return;
  }
}

// Until the line has come, as its flags tell, and stands in `seen`. tells: the thread says for whom it waits, and no
// other does. False: gave up.
template <class Flags>
RONDO_DEVICE bool await_line(const Patience& patience, const std::byte* line, Flags flags, int peer,
                             std::uint64_t epoch, bool tells, u64x2& seen) {
  Spin spin;
  std::uint64_t began = 0;
  for (;;) {
    seen = ll_load(line);
    if (has_come(seen, flags)) return true;
    if (differs(seen, flags)) {
      refuse_line(patience, peer, epoch);
      return false;
    }
    if (!spin.pause(line, seen, abort_word(patience))) continue;
    began = look_up(patience, peer, epoch, patience.operation, began);
    if (began == kGaveUp) return false;
    if (!tells) began |= kPublished;
  }
}

// Its word. False: gave up.
RONDO_DEVICE_CALL bool await_push(const Patience& patience, const std::byte* line, PushFlags flags, int peer,
                                  std::uint32_t epoch, std::uint64_t& word) {
  u64x2 seen{};
  const bool tells = thread_index() == 0;  // it waits for the same peer
  const bool came = await_line(patience, line, flags, peer, epoch, tells, seen);
  word = push_word(seen);
  return came;
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
