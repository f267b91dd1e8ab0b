// SPDX-License-Identifier: Apache-2.0
#include "bench/host_memory.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "bench/flags.hpp"
#include "bench/statistics.hpp"
#include "kernels/reduce.hpp"

namespace rondo::bench {
namespace {

constexpr std::size_t kArrayBytes = std::size_t{256} << 20;  // far more than any cache
constexpr std::size_t kPage = 4096;
constexpr int kCopies = 9;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Array = std::unique_ptr<std::byte, Free>;

Array make_array() {
  Array array(static_cast<std::byte*>(std::aligned_alloc(kPage, kArrayBytes)));
  if (!array) throw std::bad_alloc();
  return array;
}

// Where the system forbids it, the thread runs where it may.
void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

double copy_gbps_of_cpus(const std::vector<int>& cpus) {
  const Array from = make_array(), to = make_array();
  const std::size_t part = kArrayBytes / cpus.size() / kPage * kPage;
  std::vector<std::chrono::steady_clock::time_point> ends;
  std::barrier meeting(static_cast<std::ptrdiff_t>(cpus.size()),
                       [&ends]() noexcept { ends.push_back(std::chrono::steady_clock::now()); });
  ends.reserve(kCopies + 1);
  const auto copy_part = [&](std::size_t index) {
    pin(cpus[index]);
    std::byte* const out = to.get() + index * part;
    std::byte* const in = from.get() + index * part;
    for (std::byte* half : {in, out}) std::memset(half, 1, part);  // not zeros, which are written faster
    meeting.arrive_and_wait();
    for (int i = 0; i < kCopies; ++i) {
      kernels::copy(out, in, part, kernels::Stores::streaming);
      meeting.arrive_and_wait();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < cpus.size(); ++i) threads.emplace_back(copy_part, i);
  }
  std::vector<double> gbps;
  for (std::size_t i = 1; i < ends.size(); ++i) {
    const double seconds = std::chrono::duration<double>(ends[i] - ends[i - 1]).count();
    gbps.push_back(2 * static_cast<double>(part * cpus.size()) / seconds / 1e9);
  }
  return statistics_of(gbps).median;
}

// From the kernel: glibc's sysconf tells the sum over a socket on some machines.
std::size_t largest_cache_bytes() {
  std::size_t largest = 0;
  for (int level = 0; level < 8; ++level) {
    std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", level));
    std::string text;
    if (in >> text) largest = std::max(largest, parse_bytes(text));
  }
  return largest > 0 ? largest : std::size_t{32} << 20;
}

}  // namespace rondo::bench
