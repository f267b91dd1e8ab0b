// SPDX-License-Identifier: Apache-2.0
#include "comm/team/doorbell.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <random>
#include <thread>

#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::comm;

namespace {

struct Pair {  // of ranks; 0 sleeps, 1 wakes it
  Pair() {
    auto fds = std::make_shared<std::vector<rondo::Fd>>();
    for (int r = 0; r < 2; ++r) fds->emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    bells = Doorbells(segment, fds);
    for (int r = 0; r < 2; ++r) bells.prepare_sleep(r);
  }
  FifoShape shape{.slots = 2, .slice_bytes = 64, .ring_bytes = 16 << 10};
  rondo::Mapping memory = rondo::map_anonymous(Segment::bytes(2, shape));
  Segment segment{memory.data(), 2, shape};
  Doorbells bells;
};

// False: nothing rang in a second.
bool sleep_until(const Doorbells& bells, Segment segment, const std::atomic<std::uint64_t>& word, std::uint64_t value) {
  while (word.load(std::memory_order_acquire) != value) {
    bells.announce_sleep(0);
    if (word.load(std::memory_order_acquire) != value) {
      pollfd bell{bells.fd(0), POLLIN, 0};
      if (::poll(&bell, 1, 1000) == 0) return false;
      bells.drain(0);
    }
    segment.line(0).sleeping.store(0, std::memory_order_relaxed);
  }
  return true;
}

}  // namespace

// The waker stores and looks whether the sleeper sleeps; the sleeper says so and looks whether there is something.
// Without a fence on either side both may look too early, and the sleeper sleeps on.
TEST_CASE("a rank that falls asleep while it is woken wakes up") {
  Pair pair;
  if (!pair.bells.sleepers_fence()) {
    WARN("skipped: the kernel has no membarrier for us");
    return;
  }
  constexpr std::uint64_t kRounds = 30'000;
  alignas(kLine) std::atomic<std::uint64_t> asked{0};
  alignas(kLine) std::atomic<std::uint64_t> answered{0};
  std::atomic<bool> lost{false};
  std::thread sleeper([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      if (!sleep_until(pair.bells, pair.segment, asked, round)) {
        lost = true;
        return;
      }
      answered.store(round, std::memory_order_release);
    }
  });
  std::mt19937 random(7);
  for (std::uint64_t round = 1; round <= kRounds && !lost; ++round) {
    for (std::uint_fast32_t wait = random() % 400; wait != 0; --wait)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    asked.store(round, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // all that the board does where sleepers fence
    pair.bells.wake(0);
    while (answered.load(std::memory_order_acquire) != round && !lost) std::this_thread::yield();
  }
  sleeper.join();
  CHECK_FALSE(lost);
}

TEST_CASE("sleepers are relied upon once every rank has said that it fences") {
  Pair pair;
  pair.segment.line(1).fences_all = 0;
  CHECK_FALSE(pair.bells.sleepers_fence());
}
