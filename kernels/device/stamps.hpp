// SPDX-License-Identifier: Apache-2.0
// Where a kernel's time goes: places in the kernels at which thread 0 of block 0 notes the time, in builds with
// RONDO_STAMPS alone. What the kernels write and tools/gpu_check reads; no device code.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rondo::kernels::device {

enum class Stamp : std::uint32_t {
  begin,
  awaited,
  opened,
  history,
  planned,
  shared,
  posted,
  seen,
  met,
  decided,
  moved,
  posted_again,
  met_again,
  chosen,
  credited,
  arrived,
  folded,
  finished,
  end,
};
// Without commas, since they stand between commas.
inline constexpr const char* kStampNames[] = {
    "begin: nothing done yet",
    "awaited: what came before on the stream has ended",
    "opened: epochs and counters and links are read",
    "history: signature written for peers to read",
    "planned: operation and row in shared memory",
    "shared: this channel's share known",
    "posted: own arrival written to peers",
    "seen: this thread's peer has arrived",
    "met: everybody has arrived",
    "decided: who reads and writes what",
    "moved: bytes are read and folded and written",
    "posted again: own second arrival written",
    "met again: everybody has arrived again",
    "chosen: a move can go on and its slice is cut",
    "credited: the step is posted and credit given",
    "arrived: whom to fold is looked up",
    "folded: everybody's data read and folded",
    "finished: the operation is over",
    "end: counters kept for the next kernel",
};
inline constexpr std::size_t kStampCount = sizeof(kStampNames) / sizeof(kStampNames[0]);
static_assert(kStampCount == static_cast<std::size_t>(Stamp::end) + 1);

// Of one launch, in the order in which the places were passed.
struct StampedLaunch {
  static constexpr std::uint32_t kMost = 60;
  std::uint64_t begin_ns, end_ns;  // by the machine's clock
  std::uint32_t count;             // of the places passed, kMost and more too
  std::uint32_t unused;
  std::uint64_t ticks[kMost];  // of the multiprocessor
  Stamp place[kMost];
};

// Directly behind a rank's DeviceTeam, in its device memory; zeroed by the host.
struct StampLog {
  static constexpr std::uint64_t kKept = 256;
  std::uint64_t launches;       // so far; the latest kKept are kept
  StampedLaunch launch[kKept];  // number i at i % kKept
};

}  // namespace rondo::kernels::device
