// SPDX-License-Identifier: Apache-2.0
// What the launchers of a job's nodes must have alike: the release, the world, the command and the flags that the table
// says. Node 0's is written where they meet, and each of the others compares its own with that.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "tools/rondorun/options.hpp"

namespace rondo::launcher {

inline bool is_elastic(const Options& options) { return options.least_nodes > 0; }
std::string nodes_text(const Options& options);  // "2 to 4"

// A value that is compared, of each row of flags that is; the world has a sentence of its own.
struct Compared {
  std::string_view flag;
  std::string (*value)(const Options&);  // "" where it has no effect
};
std::span<const Compared> compared();

// Who: the launcher, as it is named. Of one line.
std::string terms_of(const Options& options, const std::string& who);
// Throws Error mismatch, with one sentence that names what differs. place: where they meet.
void compare_terms(const std::string& theirs, const Options& options, const std::string& place);

}  // namespace rondo::launcher
