// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <vector>

#ifdef RONDO_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef RONDO_SIMT_TSAN  // this source itself is compiled without -fsanitize=thread
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber();
void __tsan_acquire(void* key);
void __tsan_release(void* key);
}
#endif

namespace rondo::simt {
namespace {

using boost::context::detail::transfer_t;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

char* map_stack(std::size_t bytes) {
  const std::size_t guard = page_bytes();
  void* memory =
      mmap(nullptr, bytes + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, guard, PROT_NONE) != 0) {
    std::fputs("rondo: no memory for the stack of one more lane; vm.max_map_count limits their number.\n", stderr);
    std::abort();
  }
  return static_cast<char*>(memory) + guard;
}

void unpoison(const char* stack, std::size_t bytes) {
#ifdef RONDO_SIMT_ASAN
  __asan_unpoison_memory_region(stack, bytes);
#else
  (void)stack, (void)bytes;
#endif
}

void forget(void* announced) {
#ifdef RONDO_SIMT_TSAN
  if (announced != nullptr) __tsan_destroy_fiber(announced);
#else
  (void)announced;
#endif
}

// Mapping and announcing are slow, so stacks of one size are kept by the OS thread that used them.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { clear(); }

  bool take(Fiber& fiber) {
    if (stack_bytes_ != fiber.stack_bytes || entries_.empty()) return false;
    fiber.stack = entries_.back().stack;
    fiber.announced = entries_.back().announced;
    entries_.pop_back();
    return true;
  }
  void put(const Fiber& fiber) {
    if (stack_bytes_ != fiber.stack_bytes) clear();
    stack_bytes_ = fiber.stack_bytes;
    entries_.push_back({fiber.stack, fiber.announced});
  }

 private:
  struct Entry {
    char* stack;
    void* announced;
  };
  void clear() {
    for (const Entry& entry : entries_) {
      forget(entry.announced);
      unpoison(entry.stack, stack_bytes_);  // the shadow outlives the mapping
      munmap(entry.stack - page_bytes(), stack_bytes_ + page_bytes());
    }
    entries_.clear();
  }
  std::vector<Entry> entries_;
  std::size_t stack_bytes_ = 0;
};
thread_local Pool t_pool;

void arrive(transfer_t from) {
  auto& self = *static_cast<Fiber*>(from.data);
  self.resumed_by->context = from.fctx;
#ifdef RONDO_SIMT_ASAN
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(self.fake_stack, &bottom, &bytes);
  if (self.resumed_by->stack == nullptr) {
    self.resumed_by->stack = static_cast<char*>(const_cast<void*>(bottom));
    self.resumed_by->stack_bytes = bytes;
  }
#endif
}

void begin(transfer_t from) {
  arrive(from);
  const auto& self = *static_cast<Fiber*>(from.data);
  self.entry(self.owner);
  std::abort();
}

}  // namespace

void acquire(Fiber& fiber, std::size_t stack_bytes, void (*entry)(void*), void* owner) {
  fiber.stack_bytes = stack_bytes;
  if (!t_pool.take(fiber)) fiber.stack = map_stack(stack_bytes);
#ifdef RONDO_SIMT_TSAN
  if (fiber.announced == nullptr) fiber.announced = __tsan_create_fiber(0);
#endif
  unpoison(fiber.stack, stack_bytes);
  fiber.entry = entry;
  fiber.owner = owner;
  fiber.context = boost::context::detail::make_fcontext(fiber.stack + stack_bytes, stack_bytes, begin);
}

void release(Fiber& fiber, bool ended) {
  if (!ended) {  // ThreadSanitizer's own stack of calls has not been unwound
    forget(fiber.announced);
    fiber.announced = nullptr;
  }
  t_pool.put(fiber);
}

void adopt_thread(Fiber& fiber) {
#ifdef RONDO_SIMT_TSAN
  fiber.announced = __tsan_get_current_fiber();
#else
  (void)fiber;
#endif
}

void switch_fiber(Fiber& from, Fiber& to, bool for_good) {
#ifdef RONDO_SIMT_ASAN
  __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#else
  (void)for_good;
#endif
#ifdef RONDO_SIMT_TSAN
  __tsan_switch_to_fiber(to.announced, 1);  // 1: a switch orders nothing, or no race would ever be seen
#endif
  to.resumed_by = &from;
  arrive(boost::context::detail::jump_fcontext(to.context, &to));
}

#ifdef RONDO_SIMT_TSAN
void happens_before(const void* key) { __tsan_release(const_cast<void*>(key)); }
void happens_after(const void* key) { __tsan_acquire(const_cast<void*>(key)); }
void happens_before_in(const Fiber& fiber, const Fiber& self, const void* key) {
  __tsan_switch_to_fiber(fiber.announced, 1);
  happens_before(key);
  __tsan_switch_to_fiber(self.announced, 1);
}
#else
void happens_before(const void*) {}
void happens_after(const void*) {}
void happens_before_in(const Fiber&, const Fiber&, const void*) {}
#endif

}  // namespace rondo::simt
