// SPDX-License-Identifier: Apache-2.0
// Ranks as forked processes that meet over memory they inherit. Fork from a process that has one thread.
#pragma once
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rondo/communicator.hpp>
#include <rondo/error.hpp>
#include <rondo/store.hpp>

#include "comm/setup/bootstrap.hpp"
#include "comm/transport/memory.hpp"
#include "tests/support/catch.hpp"

namespace rondo::test {

// Keys and values in shared memory, appended and never erased.
class InheritedStore final : public Store {
 public:
  InheritedStore() : memory_(map_anonymous(kBytes)) {}
  void set(std::string_view key, std::span<const std::byte> value) override {
    Header& log = header();
    while (log.locked.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    const std::size_t used = log.used.load(std::memory_order_relaxed);
    const std::uint64_t lengths[2] = {key.size(), value.size()};
    const std::size_t next = used + sizeof lengths + key.size() + value.size();
    if (next > kBytes - sizeof(Header)) throw std::runtime_error("the test's store is full");
    std::byte* at = records() + used;
    std::memcpy(at, lengths, sizeof lengths);
    std::memcpy(at + sizeof lengths, key.data(), key.size());
    if (!value.empty()) std::memcpy(at + sizeof lengths + key.size(), value.data(), value.size());
    log.used.store(next, std::memory_order_release);
    log.locked.store(false, std::memory_order_release);
  }
  std::optional<Bytes> try_get(std::string_view key) override {
    std::optional<Bytes> found;
    const std::size_t used = header().used.load(std::memory_order_acquire);
    for (std::size_t at = 0; at < used;) {
      std::uint64_t lengths[2];
      std::memcpy(lengths, records() + at, sizeof lengths);
      const std::byte* name = records() + at + sizeof lengths;
      const std::byte* value = name + lengths[0];
      if (std::string_view(reinterpret_cast<const char*>(name), lengths[0]) == key) {
        found.emplace(value, value + lengths[1]);
      }
      at += sizeof lengths + lengths[0] + lengths[1];
    }
    return found;
  }
  Bytes get(std::string_view key, Deadline deadline) override {
    for (;;) {
      if (auto value = try_get(key)) return *value;
      if (std::chrono::steady_clock::now() > deadline)
        throw Error(ErrorCode::timeout, "nobody set " + std::string(key));
      std::this_thread::yield();
    }
  }
  std::int64_t add(std::string_view, std::int64_t) override { throw std::logic_error("add"); }
  bool compare_and_set(std::string_view, std::optional<Bytes>, std::span<const std::byte>) override {
    throw std::logic_error("compare_and_set");
  }
  bool erase(std::string_view) override { throw std::logic_error("erase"); }

 private:
  static constexpr std::size_t kBytes = 4 << 20;
  struct Header {
    std::atomic<bool> locked;
    std::atomic<std::size_t> used;
  };
  Header& header() { return *reinterpret_cast<Header*>(memory_.data()); }
  std::byte* records() { return memory_.data() + sizeof(Header); }
  Mapping memory_;
};

struct Ended {
  int signal = 0;       // that ended it
  std::string failure;  // what its body threw
  double seconds = 0;   // from the start of all
};

// Runs body(rank, store) in a process each and waits; who has not ended by then is killed, which is a failure.
template <class Body>
std::vector<Ended> fork_ranks(int world_size, std::chrono::seconds limit, Body body) {
  const auto started = std::chrono::steady_clock::now();
  const auto store = std::make_shared<InheritedStore>();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      pids.push_back(pid);
      continue;
    }
    for (const int signal : {SIGABRT, SIGSEGV, SIGTERM, SIGFPE, SIGILL}) ::signal(signal, SIG_DFL);  // Catch's report
    int code = 0;
    try {
      body(rank, store);
    } catch (const std::exception& error) {
      code = 1;
      store->set("failure/" + std::to_string(rank), std::as_bytes(std::span(error.what(), std::strlen(error.what()))));
    }
    std::fflush(nullptr);
    ::_exit(code);
  }
  std::vector<pollfd> running;
  for (const pid_t pid : pids) running.push_back({static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0});
  std::vector<Ended> ended(pids.size());
  const auto collect = [&](std::size_t r) {
    int status = 0;
    ::waitpid(pids[r], &status, 0);
    ::close(std::exchange(running[r].fd, -1));
    ended[r].seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    if (WIFSIGNALED(status)) ended[r].signal = WTERMSIG(status);
    if (const auto text = store->try_get("failure/" + std::to_string(r))) {
      ended[r].failure.assign(reinterpret_cast<const char*>(text->data()), text->size());
    } else if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      ended[r].failure = "exit code " + std::to_string(WEXITSTATUS(status));
    }
  };
  for (std::size_t left = pids.size(); left != 0;) {
    const auto rest = started + limit - std::chrono::steady_clock::now();
    const auto rest_ms = std::chrono::duration_cast<std::chrono::milliseconds>(rest).count();
    const bool late = rest_ms <= 0;
    ::poll(running.data(), running.size(), late ? 0 : static_cast<int>(rest_ms));
    for (std::size_t r = 0; r < pids.size(); ++r) {
      if (running[r].fd < 0) continue;
      if (late) ::kill(pids[r], SIGKILL);
      if (!late && running[r].revents == 0) continue;
      collect(r);
      if (late) ended[r].failure += " (still running after the time limit)";
      --left;
    }
  }
  return ended;
}

// In such a process.
inline Communicator join_forked(int rank, int world_size, const std::shared_ptr<Store>& store,
                                const Options& options = {}, std::string name = Bootstrap{}.name) {
  Bootstrap bootstrap;
  bootstrap.rank = rank;
  bootstrap.world_size = world_size;
  bootstrap.name = std::move(name);
  bootstrap.store = store;
  return make_communicator(std::move(bootstrap), options);
}

inline void check_ended_well(const std::vector<Ended>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    CAPTURE(r);
    CHECK(ranks[r].failure == "");
    CHECK(ranks[r].signal == 0);
  }
}

// Kills this process when it has made so many calls, somewhere in the next one.
inline std::jthread kill_after(const std::atomic<int>& calls, int count) {
  return std::jthread([&calls, count] {
    while (calls.load() < count) {
    }
    ::raise(SIGKILL);
  });
}

}  // namespace rondo::test
