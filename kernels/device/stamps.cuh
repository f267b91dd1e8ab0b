// SPDX-License-Identifier: Apache-2.0
// RONDO_STAMP(place), RONDO_STAMP_END(team): notes of the time, see stamps.hpp. Kept in shared memory until the kernel
// ends, so that no fence of the kernel waits for them. Without RONDO_STAMPS they are nothing at all.
#pragma once
#include "kernels/device/seam.cuh"

#ifndef RONDO_STAMPS
#define RONDO_STAMP(place)
#define RONDO_STAMP_END(team)
#else
#include "kernels/device/stamps.hpp"
#define RONDO_STAMP(place) stamp(Stamp::place)
#define RONDO_STAMP_END(team) stamp_end(team)

namespace rondo::kernels::device::inline RONDO_SEAM {

RONDO_DEVICE StampedLaunch& stamped_launch() {
  RONDO_SHARED(StampedLaunch, launch);
  return launch;
}

RONDO_DEVICE void stamp(Stamp place) {
  if (thread_index() != 0 || block_index() != 0) return;
  StampedLaunch& launch = stamped_launch();
  if (place == Stamp::begin) {
    launch.begin_ns = timer_ns();
    launch.count = 0;
  }
  const std::uint32_t index = launch.count++;
  if (index >= StampedLaunch::kMost) return;
  launch.ticks[index] = ticks();
  launch.place[index] = place;
}

RONDO_DEVICE void stamp_end(const DeviceTeam& team) {
  if (thread_index() != 0 || block_index() != 0) return;
  stamp(Stamp::end);
  StampedLaunch& launch = stamped_launch();
  launch.end_ns = timer_ns();
  auto& log = *reinterpret_cast<StampLog*>(const_cast<DeviceTeam*>(&team) + 1);
  const std::uint64_t number = load<std::uint64_t>(&log.launches);
  log.launch[number % StampLog::kKept] = launch;
  store<std::uint64_t>(&log.launches, number + 1);
}

}  // namespace rondo::kernels::device::inline RONDO_SEAM
#endif
