// SPDX-License-Identifier: Apache-2.0
// A stack with a function on it, and the jump from one to another, announced to AddressSanitizer and ThreadSanitizer.
// Boost.Context's fcontext jumps; its own announcements exist only in its ucontext build, which Debian does not have.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define RONDO_SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RONDO_SIMT_ASAN 1
#endif
#endif

namespace rondo::simt {

struct Fiber {
  void* context = nullptr;  // where it stopped
  char* stack = nullptr;    // lowest usable address; a thread's own stack: null until it has been left once
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* announced = nullptr;   // ThreadSanitizer's
  Fiber* resumed_by = nullptr;
  void (*entry)(void* owner) = nullptr;  // does not return
  void* owner = nullptr;
};

// A stack from this OS thread's pool, with a guard page below it; the entry runs at the first switch.
void acquire(Fiber& fiber, std::size_t stack_bytes, void (*entry)(void*), void* owner);
// Back to the pool. `ended`: it has left for good by itself.
void release(Fiber& fiber, bool ended);
void adopt_thread(Fiber& fiber);  // the calling thread as it is
// for_good: `from` is never switched to again.
void switch_fiber(Fiber& from, Fiber& to, bool for_good = false);

// Happens-before edges for ThreadSanitizer, which is told that a switch is none; nothing in other builds.
void happens_before(const void* key);
void happens_after(const void* key);
// The same edge for a fiber that will not run again to draw it itself.
void happens_before_in(const Fiber& fiber, const Fiber& self, const void* key);

}  // namespace rondo::simt
