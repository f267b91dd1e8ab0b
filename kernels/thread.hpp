// SPDX-License-Identifier: Apache-2.0
// The threads that the library starts. The process's signals are for the program's own threads to handle, so every
// signal is blocked in them; they bear names, which debuggers and `top -H` show.
#pragma once
#include <pthread.h>
#include <unistd.h>
#include <csignal>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace rondo {

// All of the calling thread's signals, for as long as this lives. A thread starts with those of who started it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

inline constexpr const char* kNoMemory = "no memory is left; see its limits (ulimit -v, the control group's)";
// What it says, in words.
inline const char* reason_of(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? kNoMemory : error.what();
}

// A thread of the library that gets no memory can keep no promise, and nobody else would hear of it.
[[noreturn]] inline void end_without_memory(const char* thread) {
  ::dprintf(STDERR_FILENO, "rondo: the thread %s: %s\n", thread, kNoMemory);
  std::abort();
}

// Owned by one object, which joins it. `name`: at most 15 characters, alive as long as the program.
// std::system_error naming it when the system has no further thread for this process. A body that throws bad_alloc ends
// the process, with a sentence.
template <class Body>
std::thread start_thread(const char* name, Body body) {
  const SignalsBlocked blocked;
  try {
    return std::thread([name, body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name);
      try {
        body();
      } catch (const std::bad_alloc&) {
        end_without_memory(name);
      }
    });
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), std::string("cannot start the thread ") + name +
                                              "; see the limits of processes (ulimit -u, the control group's pids.max) "
                                              "and of memory (ulimit -v)");
  }
}

}  // namespace rondo
