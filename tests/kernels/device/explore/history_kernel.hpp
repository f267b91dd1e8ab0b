// SPDX-License-Identifier: Apache-2.0
// Rank 0 writes collective after collective into its history; the threads of the others read it all the while.
#pragma once
#include "kernels/device/sequence.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

inline constexpr std::uint64_t kWritten = 3 * kHistory;

RONDO_DEVICE DeviceSignature signature_of(std::uint64_t sequence) {
  return {sequence, 3 * sequence, 5 * sequence, 7 * sequence};
}

// What is read is right, or is not known; the latest is known in the end.
RONDO_DEVICE void read_along(const DeviceTeam& team) {
  const RegionHeader* const header = team.headers[0];
  DeviceSignature found{};
  const auto is_right = [&](std::uint64_t sequence) {
    if (!read_history(header, sequence, found)) return false;
    if (!(found == signature_of(sequence))) trap("an entry that is not whole was taken for one");
    return true;
  };
  for (std::uint64_t i = 0; i < 60; ++i) is_right(1 + (i * 7 + thread_index()) % kWritten);
  SpinAny spin;
  for (;;) {
    spin.begin();
    watch_history(*header, kWritten, spin);
    if (is_right(kWritten)) return;
    spin.pause(&team.page->abort);
  }
}

RONDO_KERNEL history_kernel(RONDO_KERNEL_ARGUMENT Launch launch) {
  await_stream();
  const DeviceTeam& team = *launch.team;
  if (team.rank != 0) return read_along(team);
  if (thread_index() != 0) return;
  for (std::uint64_t sequence = 1; sequence <= kWritten; ++sequence)
    write_history(own_header(team), signature_of(sequence));
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
