// SPDX-License-Identifier: Apache-2.0
#include "bindings/python/source/interrupt.hpp"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>

namespace rondo::python {
namespace {

// The handler posts; a thread that waits for it aborts, which no handler may do.
struct Watch {
  sem_t arrived;
  std::mutex mutex;
  Communicator* blocked = nullptr;  // the one whose call the main thread is in
  std::atomic<bool> is_blocked{false};
  struct sigaction python {};  // Python's handler
  std::atomic<bool> stopping{false};
  std::thread thread;
};
// Of the process `owner`; never destroyed, since the handler may run at any time. A forked child makes its own.
Watch* the_watch = nullptr;
pid_t owner = 0;

void on_interrupt(int signal, siginfo_t* info, void* context) {
  Watch& watch = *the_watch;
  if ((watch.python.sa_flags & SA_SIGINFO) != 0) {
    watch.python.sa_sigaction(signal, info, context);
  } else if (watch.python.sa_handler != SIG_DFL && watch.python.sa_handler != SIG_IGN) {
    watch.python.sa_handler(signal);
  }
  if (watch.is_blocked.load()) {
    const int kept = errno;
    sem_post(&watch.arrived);
    errno = kept;
  }
}

void abort_when_interrupted(Watch& watch) {
  pthread_setname_np(pthread_self(), "rondo-interrupt");  // what runs nothing of the program's, the library knows by it
  while (true) {
    while (sem_wait(&watch.arrived) != 0) {
    }
    if (watch.stopping) return;
    const std::lock_guard lock(watch.mutex);
    if (watch.blocked != nullptr) watch.blocked->abort();
  }
}

Watch& watch_of_this_process() {
  if (the_watch != nullptr && owner == getpid()) return *the_watch;
  auto* made = new Watch;
  if (the_watch != nullptr) made->python = the_watch->python;  // a forked child: the handler came along
  sem_init(&made->arrived, 0, 0);
  owner = getpid();
  the_watch = made;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  made->thread = std::thread(abort_when_interrupted, std::ref(*made));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return *made;
}

// Python's own handler is the one to stand before; without one (ignored, the default) a signal does as it did.
bool stand_before_pythons_handler(Watch& watch) {
  struct sigaction now {};
  if (sigaction(SIGINT, nullptr, &now) != 0) return false;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_interrupt) return true;
  if ((now.sa_flags & SA_SIGINFO) == 0 && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return false;
  watch.python = now;
  struct sigaction ours {};
  ours.sa_sigaction = on_interrupt;
  ours.sa_flags = SA_SIGINFO | (now.sa_flags & (SA_ONSTACK | SA_RESTART));
  ours.sa_mask = now.sa_mask;
  return sigaction(SIGINT, &ours, nullptr) == 0;
}

}  // namespace

void stop_watching_for_interrupts() {
  if (the_watch == nullptr || owner != getpid() || !the_watch->thread.joinable()) return;
  the_watch->stopping = true;
  sem_post(&the_watch->arrived);
  the_watch->thread.join();
}

// Only the main thread runs Python's handlers. On Linux its thread's number is the process's.
Interruptible::Interruptible(Communicator& communicator) {
  if (gettid() != getpid()) return;
  Watch& watch = watch_of_this_process();
  if (!stand_before_pythons_handler(watch)) return;
  const std::lock_guard lock(watch.mutex);
  watch.blocked = &communicator;
  watch.is_blocked = true;
  watched_ = true;
}

Interruptible::~Interruptible() {
  if (!watched_) return;
  Watch& watch = *the_watch;
  watch.is_blocked = false;
  const std::lock_guard lock(watch.mutex);
  watch.blocked = nullptr;
}

}  // namespace rondo::python
