// SPDX-License-Identifier: Apache-2.0
// Programs split a world into dozens of groups, most of which rest most of the time: what a group costs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <vector>

#include <rondo/communicator.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace std::chrono_literals;
using test::check_ended_well;
using test::expect;
using test::fork_ranks;
using test::join_forked;
using test::Setting;

namespace {

constexpr int kRanks = 4, kGroups = 50;

std::size_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}
std::size_t descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(open), end(open)));
}

double seconds_of(const std::function<void()>& body) {
  const auto begun = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}
double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace

TEST_CASE("groups that rest have no thread and few descriptors") {
  const Setting transport("RONDO_TRANSPORT", GENERATE("shm", "tcp"));
  const int group_size = GENERATE(2, 4);
  check_ended_well(fork_ranks(kRanks, 60s, [&](int rank, const auto& store) {
    Communicator world = join_forked(rank, kRanks, store);
    const std::size_t threads_before = threads(), descriptors_before = descriptors();
    std::vector<Communicator> groups;
    for (int i = 0; i < kGroups; ++i) groups.push_back(world.split(rank / group_size, rank));
    // Two doorbells of each rank, and of each other one a connection: what tells of its process's end, the world has.
    const auto most = static_cast<std::size_t>(kGroups * (3 * group_size - 1));
    expect(descriptors() <= descriptors_before + most,
           fmt::format("{} descriptors, {} before", descriptors(), descriptors_before));
    expect(threads() == threads_before, fmt::format("{} threads, {} before", threads(), threads_before));
    float value = 1;
    for (Communicator& group : groups) group.async().all_reduce(std::span(&value, 1), ReduceOp::max).wait();
    constexpr std::size_t kMostThreads = 8;  // one that has done a group's call may not be back before the next one
    expect(threads() <= threads_before + kMostThreads,
           fmt::format("{} threads once each group was used, {} before", threads(), threads_before));
    groups.clear();
    world.barrier();
    expect(descriptors() <= descriptors_before, "descriptors are left over");
  }));
}

TEST_CASE("communicators made one by one share the thread that watches") {
  check_ended_well(fork_ranks(2, 60s, [&](int rank, const auto& store) {
    std::vector<Communicator> worlds;
    worlds.push_back(join_forked(rank, 2, store, {}, "world0"));
    const std::size_t of_one = threads();  // ThreadSanitizer's own, which comes with the first, among them
    for (int i = 1; i < 5; ++i) worlds.push_back(join_forked(rank, 2, store, {}, fmt::format("world{}", i)));
    expect(threads() == of_one, fmt::format("{} threads, {} with one of them", threads(), of_one));
    worlds.erase(worlds.begin());
    for (Communicator& world : worlds) world.barrier();
    worlds.clear();
    // The kernel may take a moment to forget a thread that was joined.
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (threads() != of_one - 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    expect(threads() == of_one - 1, "the thread outlives the last communicator");
  }));
}

TEST_CASE("a group takes less time to make than a world of the same ranks") {
  check_ended_well(fork_ranks(kRanks, 60s, [&](int rank, const auto& store) {
    constexpr int kTimes = 21;
    Communicator first = join_forked(rank, kRanks, store);
    std::vector<double> worlds, groups;
    std::vector<Communicator> made;
    for (int i = 0; i < kTimes; ++i) {
      first.barrier();
      worlds.push_back(
          seconds_of([&] { made.push_back(join_forked(rank, kRanks, store, {}, fmt::format("w{}", i))); }));
      first.barrier();
      groups.push_back(seconds_of([&] { made.push_back(first.split(0, rank)); }));
    }
    first.barrier();
    expect(median(groups) < median(worlds),
           fmt::format("{:.6f} s for a group, {:.6f} s for a world", median(groups), median(worlds)));
  }));
}
