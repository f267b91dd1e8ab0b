// SPDX-License-Identifier: Apache-2.0
#include "bench/host_memory.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>

#include "bench/flags.hpp"
#include "bench/statistics.hpp"
#include "kernels/reduce.hpp"

namespace rondo::bench {
namespace {

constexpr std::size_t kArrayBytes = std::size_t{256} << 20;  // far more than any cache
constexpr std::size_t kPage = 4096;
constexpr int kPasses = 9;

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

// Each page once more, past the caches.
void store(std::byte* out, std::size_t bytes) {
  alignas(64) std::array<std::byte, kPage> page;
  page.fill(std::byte{1});
  for (std::size_t at = 0; at < bytes; at += kPage)
    kernels::copy(out + at, page.data(), kPage, kernels::Stores::streaming);
}

void load(const std::byte* in, std::size_t bytes) {
  std::array<std::uint64_t, 8> sums{};
  for (std::size_t at = 0; at < bytes; at += sizeof sums) {
    std::array<std::uint64_t, 8> words;
    std::memcpy(words.data(), in + at, sizeof words);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += words[i];
  }
  static std::atomic<std::uint64_t> seen;
  seen.store(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}), std::memory_order_relaxed);
}

// Passes over a part of both arrays by each CPU, all at the same time: their seconds.
class Passes {
 public:
  explicit Passes(const std::vector<int>& cpus) : cpus_(cpus) {}
  std::size_t bytes() const { return part_ * cpus_.size(); }

  template <class Pass>
  double median_seconds(int times, Pass pass) {
    std::vector<std::chrono::steady_clock::time_point> ends;
    ends.reserve(static_cast<std::size_t>(times) + 1);
    std::barrier meeting(static_cast<std::ptrdiff_t>(cpus_.size()),
                         [&ends]() noexcept { ends.push_back(std::chrono::steady_clock::now()); });
    {
      std::vector<std::jthread> threads;
      for (std::size_t index = 0; index < cpus_.size(); ++index) {
        threads.emplace_back([&, index] {
          pin(cpus_[index]);
          meeting.arrive_and_wait();
          for (int i = 0; i < times; ++i) {
            pass(to_.get() + index * part_, from_.get() + index * part_, part_);
            meeting.arrive_and_wait();
          }
        });
      }
    }
    std::vector<double> seconds;
    for (std::size_t i = 1; i < ends.size(); ++i)
      seconds.push_back(std::chrono::duration<double>(ends[i] - ends[i - 1]).count());
    return statistics_of(seconds).median;
  }

 private:
  const std::vector<int>& cpus_;
  const Array from_ = make_array(), to_ = make_array();
  const std::size_t part_ = kArrayBytes / cpus_.size() / kPage * kPage;
};

}  // namespace

MemoryRates memory_rates_of_cpus(const std::vector<int>& cpus) {
  using kernels::Stores;
  Passes passes(cpus);
  passes.median_seconds(1, [](std::byte* out, std::byte* in, std::size_t part) {
    for (std::byte* half : {in, out}) std::memset(half, 1, part);  // not zeros, which are written faster
  });
  const auto gbps = [&](double bytes_per_byte, auto pass) {
    return bytes_per_byte * static_cast<double>(passes.bytes()) / passes.median_seconds(kPasses, pass) / 1e9;
  };
  using Bytes = std::byte*;
  return {
      .copy = gbps(2, [](Bytes out, Bytes in, std::size_t part) { kernels::copy(out, in, part, Stores::streaming); }),
      .load = gbps(1, [](Bytes, Bytes in, std::size_t part) { load(in, part); }),
      .store = gbps(1, [](Bytes out, Bytes, std::size_t part) { store(out, part); })};
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
