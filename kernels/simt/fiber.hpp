// SPDX-License-Identifier: Apache-2.0
// fiber.h -- stack switching with sanitizer annotations.  Include from uninstrumented TUs only (TSan).
#pragma once
#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#if defined(RONDO_SIMT_UCONTEXT)
#include <ucontext.h>
#else
#include <boost/context/detail/fcontext.hpp>
#endif
#if defined(__SANITIZE_ADDRESS__)
#define RONDO_SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RONDO_SIMT_ASAN 1
#endif
#endif
#ifdef RONDO_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef RONDO_SIMT_TSAN  // defined by the build; this TU itself is compiled WITHOUT -fsanitize=thread
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber(void);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#endif

namespace rondo::simt {

struct Fiber {
#if defined(RONDO_SIMT_UCONTEXT)
  ucontext_t ctx;
#else
  boost::context::detail::fcontext_t ctx = nullptr;
#endif
  char* stack = nullptr;  // lowest usable address
  size_t size = 0;
  void* fake = nullptr;  // ASan fake stack
  void* tsan = nullptr;  // TSan fiber

  using Entry = void (*)();  // must never return; the current fiber is found through a thread_local

  static char* map_stack(size_t bytes) {
    size_t pg = 4096;
    void* m = mmap(nullptr, bytes + pg, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) return nullptr;
    mprotect(m, pg, PROT_NONE);
    return static_cast<char*>(m) + pg;
  }
  static void unmap_stack(char* s, size_t bytes) {
#ifdef RONDO_SIMT_ASAN
    __asan_unpoison_memory_region(s, bytes);  // munmap leaves the shadow poisoned for the next mmap here
#endif
    munmap(s - 4096, bytes + 4096);
  }
};

inline thread_local Fiber* t_from = nullptr;  // who switched to the running fiber

inline void after_switch(Fiber& self) {
#ifdef RONDO_SIMT_ASAN
  const void* old = nullptr;
  size_t n = 0;
  __sanitizer_finish_switch_fiber(self.fake, &old, &n);
  if (t_from && !t_from->stack) {
    t_from->stack = (char*)const_cast<void*>(old);
    t_from->size = n;
  }
#else
  (void)self;
#endif
}

#if !defined(RONDO_SIMT_UCONTEXT)
inline thread_local Fiber::Entry t_entry;
inline void fiber_tramp(boost::context::detail::transfer_t t) {
  if (t_from) t_from->ctx = t.fctx;
  t_entry();
  __builtin_trap();
}
#endif

inline void fiber_init(Fiber& f, Fiber::Entry e) {
#ifdef RONDO_SIMT_ASAN
  __asan_unpoison_memory_region(f.stack, f.size);
#endif
#if defined(RONDO_SIMT_UCONTEXT)
  getcontext(&f.ctx);
  f.ctx.uc_stack.ss_sp = f.stack;
  f.ctx.uc_stack.ss_size = f.size;
  f.ctx.uc_link = nullptr;
  makecontext(&f.ctx, e, 0);
#else
  t_entry = e;
  f.ctx = boost::context::detail::make_fcontext(f.stack + f.size, f.size, fiber_tramp);
#endif
}

// dying: the current fiber never runs again
inline void fiber_switch(Fiber& from, Fiber& to, bool dying = false) {
#ifdef RONDO_SIMT_ASAN
  __sanitizer_start_switch_fiber(dying ? nullptr : &from.fake, to.stack, to.size);
#endif
#ifdef RONDO_SIMT_TSAN
  __tsan_switch_to_fiber(to.tsan, 1 /* no sync: a switch is not a happens-before edge */);
#endif
  t_from = &from;
  (void)dying;
#if defined(RONDO_SIMT_UCONTEXT)
  swapcontext(&from.ctx, &to.ctx);
#else
  boost::context::detail::transfer_t t = boost::context::detail::jump_fcontext(to.ctx, nullptr);
  if (t_from) t_from->ctx = t.fctx;  // the one that came back to us was suspended here
#endif
  after_switch(from);
}

}  // namespace rondo::simt
