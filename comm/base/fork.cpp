// SPDX-License-Identifier: Apache-2.0
#include "comm/base/fork.hpp"

#include <pthread.h>
#include <unistd.h>
#include <ctime>

#include <array>
#include <bit>
#include <cerrno>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/base/fork_pause.hpp"

namespace rondo {
namespace {

// A bit for every descriptor that Linux lets a process have unless told otherwise (fs.nr_open). Without a lock: another
// thread may hold one for ever in a child, and what runs there first may only make async-signal-safe calls.
constexpr std::size_t kMost = std::size_t{1} << 20, kBits = 64;
constinit std::array<std::atomic<std::uint64_t>, kMost / kBits> marked{};
constinit std::atomic<std::size_t> words_used{0};

bool has_place(int fd) { return fd >= 0 && static_cast<std::size_t>(fd) < kMost; }
std::size_t word_of(int fd) { return static_cast<std::size_t>(fd) / kBits; }
std::uint64_t bit_of(int fd) { return std::uint64_t{1} << (static_cast<std::size_t>(fd) % kBits); }

// Held by who makes a descriptor until it is marked, and by a fork. A handler of a signal that forks in between would
// wait for its own thread: it goes on after a while.
pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
thread_local bool holds = false;  // this thread, while it forks

void before_fork() {
  constexpr int kTries = 1000;
  constexpr timespec kPause{0, 100'000};
  const int before = errno;
  for (int i = 0; i < kTries && !holds; ++i) {
    holds = ::pthread_mutex_trylock(&making) == 0;
    if (!holds) ::nanosleep(&kPause, nullptr);
  }
  errno = before;
}
void after_fork() {
  if (std::exchange(holds, false)) ::pthread_mutex_unlock(&making);
}

void in_child() {
  if (!std::exchange(holds, false))
    making = PTHREAD_MUTEX_INITIALIZER;  // its holder is not here
  else
    ::pthread_mutex_unlock(&making);
  forks::count.fetch_add(1, std::memory_order_relaxed);
  const int before = errno;
  for (std::size_t word = 0; word < words_used.load(std::memory_order_relaxed); ++word) {
    for (std::uint64_t left = marked[word].exchange(0, std::memory_order_relaxed); left != 0; left &= left - 1)
      ::close(static_cast<int>(word * kBits) + std::countr_zero(left));
  }
  errno = before;
}

[[maybe_unused]] const int registered = ::pthread_atfork(&before_fork, &after_fork, &in_child);

}  // namespace

namespace forks {

constinit std::atomic<std::uint32_t> count{0};

void forget(void* object) {
  if (object == nullptr) return;
  static std::mutex mutex;
  static auto* const forgotten = new std::vector<void*>;  // outlives static objects that are forgotten at exit
  const std::lock_guard lock(mutex);
  forgotten->push_back(object);
}

}  // namespace forks

ForkPause::ForkPause() { ::pthread_mutex_lock(&making); }
ForkPause::~ForkPause() { ::pthread_mutex_unlock(&making); }

void mark_for_children(int fd) {
  if (!has_place(fd)) return;
  marked[word_of(fd)].fetch_or(bit_of(fd), std::memory_order_relaxed);
  std::size_t used = words_used.load(std::memory_order_relaxed);
  while (used <= word_of(fd) && !words_used.compare_exchange_weak(used, word_of(fd) + 1)) {
  }
}

void unmark_for_children(int fd) {
  if (has_place(fd)) marked[word_of(fd)].fetch_and(~bit_of(fd), std::memory_order_relaxed);
}

}  // namespace rondo
