// SPDX-License-Identifier: Apache-2.0
// Every process below this one: children, their children, and whatever was orphaned among them. A subreaper becomes
// the parent of its orphaned descendants, so a daemon (double fork, setsid) cannot leave the descent.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <vector>

#include "comm/base/fd.hpp"
#include "runtime/process/event_loop.hpp"

namespace rondo::process {

void become_subreaper();

// Direct and indirect; a snapshot.
std::vector<pid_t> descendants();
// The same from the parent of every process in /proc, for kernels without /proc/*/task/*/children. Slower.
std::vector<pid_t> descendants_by_scan();

// Ends all of it: each by SIGTERM, since what watches over others may have things to tidy when they are gone (Python's
// resource tracker has), and who is left at `patience_ends` by SIGKILL, until there is nothing left to kill or to reap;
// false at the deadline. SIGCHLD must be blocked in every thread.
bool end_descent(std::chrono::steady_clock::time_point patience_ends, std::chrono::steady_clock::time_point deadline);
inline bool kill_descent(std::chrono::steady_clock::time_point deadline) { return end_descent({}, deadline); }

// Reaps adopted processes that have ended, up to one that `is_own` claims: call it on SIGCHLD and after each of those.
void reap_adopted(const std::function<bool(pid_t)>& is_own);

// Does that on each SIGCHLD, which must be blocked, while the loop runs; what it returns must live as long.
[[nodiscard]] Fd watch_adopted(EventLoop& loop, std::function<bool(pid_t)> is_own);

}  // namespace rondo::process
