// SPDX-License-Identifier: Apache-2.0
// Durations as callers give them: one check and one clamp for every limit that the public interface takes, so that
// milliseconds::max() waits for ever instead of overflowing to a moment that has passed.
#pragma once
#include <chrono>
#include <string_view>

#include <rondo/export.hpp>

namespace rondo {

// Longer than anybody waits, and far from overflowing in nanoseconds, whatever is added to it or to the time of day.
inline constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365 * 20);

// At most kForEver. Error(invalid_argument) with the name of what was given unless it is at least a millisecond.
RONDO_API std::chrono::milliseconds checked_duration(std::string_view name, std::chrono::milliseconds given);

// The steady clock in that long, or in kForEver.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds duration) {
  return std::chrono::steady_clock::now() + (duration < kForEver ? duration : kForEver);
}
// A deadline that something may be added to.
inline std::chrono::steady_clock::time_point at_most_for_ever(std::chrono::steady_clock::time_point deadline) {
  const auto latest = deadline_after(kForEver);
  return deadline < latest ? deadline : latest;
}

// For how long whoever was to sleep until then, and is awake only now, has stood still: 0 up to what a process that
// shares its core may be late. Beyond that it was stopped, or its whole host. It has not waited in that time: what
// others did meanwhile it has still to look at before it blames somebody.
inline std::chrono::nanoseconds stood_still(std::chrono::steady_clock::time_point until,
                                            std::chrono::steady_clock::time_point now) {
  constexpr std::chrono::milliseconds kUsual{500};
  return now - until > kUsual ? now - until : std::chrono::nanoseconds(0);
}

}  // namespace rondo
