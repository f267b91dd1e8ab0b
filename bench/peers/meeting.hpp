// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one launch meet beside the library under test, which never sees it: a small file in shared memory.
// They agree on iteration counts there, line up before a cell, and leave their time stamps (CLOCK_MONOTONIC is one
// clock for all processes of a host). A rank waits by spinning while every rank has a core. With more ranks than cores
// it yields: a sleeper on the other core takes 20 us to wake, longer than the calls that are lined up and counted with
// them. Beside libraries whose ranks sleep it sleeps too, or it would be in the way of their threads.
#pragma once
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

namespace rondo::peers {

constexpr int kMostRanks = 64;
constexpr std::size_t kMostIterations = 20000;

inline double now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
inline double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

enum class Waits { spin, yield, sleep };

inline Waits waits_of(const std::string& name) {
  if (name == "spin") return Waits::spin;
  if (name == "yield") return Waits::yield;
  if (name == "sleep") return Waits::sleep;
  std::fprintf(stderr, "--waits %s is none of spin, yield, sleep\n", name.c_str());
  std::exit(2);
}

struct Stamp {
  double begin, end;
};

class Meeting {
 public:
  // `idle` is called now and then while waiting.
  Meeting(const std::string& path, int rank, int np, Waits waits, std::function<void()> idle)
      : rank_(rank), np_(np), waits_(waits), idle_(std::move(idle)) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const std::size_t bytes = sizeof(Shared) + sizeof(Stamp) * static_cast<std::size_t>(np) * kMostIterations;
    if (np > kMostRanks || file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) fail(path.c_str());
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    ::close(file);
    shared_ = static_cast<Shared*>(memory);
  }

  void wait() { wait(waits_); }
  // Before a call that is timed. Where every rank has a core all go on at one time by the clock, or whoever came last
  // would be the first to begin: by as long as a flag takes, which is a part of a short call.
  void line_up() {
    wait();
    if (waits_ != Waits::spin) return;
    const double start = shared_->start.load(std::memory_order_relaxed);
    while (now() < start) pause();
  }
  // A barrier. Nobody is more than one behind, so `arrived` may be reset by the last. Every rank waits the same way.
  void wait(Waits how) {
    const std::uint32_t phase = shared_->phase.load();
    if (shared_->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(np_)) {
      shared_->arrived.store(0);
      shared_->start.store(now() + kLeadSeconds, std::memory_order_relaxed);
      shared_->phase.store(phase + 1);
      if (how == Waits::sleep) ::syscall(SYS_futex, &shared_->phase, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
      return;
    }
    const double deadline = now() + kPatienceSeconds;
    for (long poll = 1; shared_->phase.load(std::memory_order_acquire) == phase; ++poll) {
      if (how != Waits::sleep) {
        if (how == Waits::spin) pause();
        if (how == Waits::yield) yield();
        if (poll % kPollsBetweenIdle == 0) idle_();
      } else {
        const timespec turn{0, 2'000'000};
        const long status = ::syscall(SYS_futex, &shared_->phase, FUTEX_WAIT, phase, &turn, nullptr, 0);
        if (status != 0 && errno == ETIMEDOUT) idle_();
      }
      if ((how == Waits::sleep || poll % 0x10000 == 0) && now() > deadline) {
        std::fprintf(stderr, "rank %d: the other ranks did not come\n", rank_);
        std::_Exit(3);
      }
    }
  }

  double max_over_ranks(double mine) {
    shared_->values[rank_] = mine;
    wait();
    const double most = *std::max_element(shared_->values, shared_->values + np_);
    wait();
    return most;
  }

  // One-way latency of a flag between two cores, in ns: a virtual machine's cores wander, and this tells near from far.
  // Ranks 0 and 1 pass it: where they are, if every rank has a core, else on the machine's first two, while the others
  // sleep. 0 where it took over kProbeSeconds or there are no such cores: not known.
  double probe() {
    if (np_ < 2) return 0;
    const Waits aside = waits_ == Waits::spin ? Waits::spin : Waits::sleep;
    if (rank_ == 0) shared_->ping.store(0), shared_->pong.store(0);
    wait();
    double mine_ns = 0;
    if (rank_ < 2) {
      const OnCore placed(aside == Waits::spin ? -1 : rank_);
      mine_ns = ping_pong();
    }
    wait(aside);
    return max_over_ranks(mine_ns);
  }

  // From the first rank's first begin to the last rank's last end.
  double seconds_of_all(std::size_t iterations) {
    double begin = stamps(0)[0].begin, end = stamps(0)[iterations - 1].end;
    for (int rank = 1; rank < np_; ++rank) {
      begin = std::min(begin, stamps(rank)[0].begin);
      end = std::max(end, stamps(rank)[iterations - 1].end);
    }
    return end - begin;
  }

  Stamp* stamps(int rank) { return shared_->stamps + static_cast<std::size_t>(rank) * kMostIterations; }

 private:
  static constexpr double kPatienceSeconds = 60;
  static constexpr double kLeadSeconds = 0.5e-6;  // all have seen by then that all have come
  static constexpr double kProbeSeconds = 10e-3;
  static constexpr long kPollsBetweenIdle = 50000;
  static constexpr std::uint32_t kFlags = 75, kBatches = 4;  // the quickest batch: others held up a rank

  struct Shared {
    alignas(128) std::atomic<std::uint32_t> arrived;
    alignas(128) std::atomic<std::uint32_t> phase;
    std::atomic<double> start;  // by the last who came
    alignas(128) double values[kMostRanks];
    alignas(128) std::atomic<std::uint32_t> ping;
    alignas(128) std::atomic<std::uint32_t> pong;
    alignas(128) Stamp stamps[1];  // [np][kMostIterations]
  };

  static void yield() { ::sched_yield(); }
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    std::_Exit(2);
  }

  // This thread on one core, until the end of the scope; -1: where it is.
  class OnCore {
   public:
    explicit OnCore(int core) {
      ::sched_getaffinity(0, sizeof before_, &before_);
      if (core < 0) return;
      cpu_set_t only;
      CPU_ZERO(&only);
      CPU_SET(static_cast<unsigned>(core), &only);
      ::sched_setaffinity(0, sizeof only, &only);
    }
    OnCore(const OnCore&) = delete;
    OnCore& operator=(const OnCore&) = delete;
    ~OnCore() { ::sched_setaffinity(0, sizeof before_, &before_); }

   private:
    cpu_set_t before_;
  };

  // 0 on rank 1.
  double ping_pong() {
    auto& mine = rank_ == 0 ? shared_->ping : shared_->pong;
    auto& other = rank_ == 0 ? shared_->pong : shared_->ping;
    const double end = now() + kProbeSeconds;
    double quickest = 1;
    for (std::uint32_t batch = 0; batch < kBatches; ++batch) {
      const double begin = now();
      for (std::uint32_t i = batch * kFlags + 1; i <= (batch + 1) * kFlags; ++i) {
        if (rank_ == 0) mine.store(i, std::memory_order_release);
        for (int poll = 1; other.load(std::memory_order_acquire) < i; ++poll) {
          if (poll % 256 == 0 && now() > end) return 0;
        }
        if (rank_ == 1) mine.store(i, std::memory_order_release);
      }
      quickest = std::min(quickest, now() - begin);
    }
    return rank_ == 0 ? quickest / kFlags / 2 * 1e9 : 0;
  }

  int rank_, np_;
  Waits waits_;
  std::function<void()> idle_;
  Shared* shared_ = nullptr;
};

}  // namespace rondo::peers
