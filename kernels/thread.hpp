// SPDX-License-Identifier: Apache-2.0
// The threads that the library starts. The process's signals are for the program's own threads to handle, so every
// signal is blocked in them; they bear names, which debuggers and `top -H` show.
#pragma once
#include <pthread.h>
#include <csignal>

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

// Owned by one object, which joins it. `name`: at most 15 characters, alive as long as the program.
// std::system_error naming it when the system has no further thread for this process.
template <class Body>
std::thread start_thread(const char* name, Body body) {
  const SignalsBlocked blocked;
  try {
    return std::thread([name, body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name);
      body();
    });
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), std::string("cannot start the thread ") + name +
                                              "; see the limits of processes (ulimit -u, the control group's pids.max) "
                                              "and of memory (ulimit -v)");
  }
}

}  // namespace rondo
