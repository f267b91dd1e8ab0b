// SPDX-License-Identifier: Apache-2.0
// System calls that short messages wait for, without a function of the C library to return from.
//
// A processor predicts where a function returns to from the calls that it has seen. How Linux protects itself from
// SRSO, on AMD's Zen to Zen 4, leaves it with the kernel's calls alone: whichever function returns first after a system
// call, and was not called since, is thought to return into the kernel. That costs as much as the call was deep: a Zen
// 4 takes 0.12 us for getppid() and 0.16 with such a return, 0.34 and 0.48 for sched_yield(), 1.15 and 1.54 for a
// send() and a recv(). So calls that lead nowhere follow a system call: what returns after them is mispredicted still,
// for 5 ns. A Zen 5, of which a virtual machine's kernel may say the same, takes no longer either way.
#pragma once
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <type_traits>

// Where ThreadSanitizer watches, the C library's functions tell it what threads have agreed on.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define RONDO_HAS_SYSTEM_CALLS 1
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef RONDO_HAS_SYSTEM_CALLS
#endif
#endif
#endif

namespace rondo {

// What the kernel says of SRSO, in /sys/devices/system/cpu/vulnerabilities.
inline bool tells_of_stray_returns(std::string_view vulnerability) {
  return vulnerability.find("Safe RET") != std::string_view::npos;
}

#ifdef RONDO_HAS_SYSTEM_CALLS
namespace system_calls {

// Every call would have to be returned from.
inline bool has_shadow_stack() {
  unsigned long pointer = 0;
  asm volatile("rdsspq %0" : "+r"(pointer));  // does nothing where there is none
  return pointer != 0;
}

inline bool have_stray_returns() {
  if (__builtin_cpu_is("amdfam17h") == 0 && __builtin_cpu_is("amdfam19h") == 0) return false;
  char text[128];
  const int file = ::open("/sys/devices/system/cpu/vulnerabilities/spec_rstack_overflow", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t bytes = ::read(file, text, sizeof text);
  ::close(file);
  return bytes > 0 && tells_of_stray_returns({text, static_cast<std::size_t>(bytes)}) && !has_shadow_stack();
}

inline const bool kHaveStrayReturns = have_stray_returns();

// As many as a Zen remembers, below what a function may keep under its stack.
[[gnu::always_inline]] inline void call_nothing() {
  asm volatile(
      "lea -128(%%rsp), %%rsp\n"
      ".rept 32\n"
      "call 1f\n"
      "int3\n"
      "1:\n"
      ".endr\n"
      "lea 128 + 32 * 8(%%rsp), %%rsp" ::
          : "memory");
}

template <class T>
long word_of(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<long>(value);
  } else {
    return static_cast<long>(value);
  }
}

}  // namespace system_calls
#endif

// What `number` returns, or an error's number, negative; `function` does the same. At most six arguments.
template <class Function, class... Args>
[[gnu::always_inline]] inline long system_call([[maybe_unused]] long number, [[maybe_unused]] Function function,
                                               Args... args) {
#ifdef RONDO_HAS_SYSTEM_CALLS
  const long words[6] = {system_calls::word_of(args)...};
  register long fourth asm("r10") = words[3];
  register long fifth asm("r8") = words[4];
  register long sixth asm("r9") = words[5];
  asm volatile("syscall"
               : "+a"(number)
               : "D"(words[0]), "S"(words[1]), "d"(words[2]), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  if (system_calls::kHaveStrayReturns) system_calls::call_nothing();
  return number;
#else
  const long result = function(args...);
  return result < 0 ? -errno : result;
#endif
}

[[gnu::always_inline]] inline void yield_cpu() { system_call(SYS_sched_yield, ::sched_yield); }

}  // namespace rondo
