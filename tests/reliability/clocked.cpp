// SPDX-License-Identifier: Apache-2.0
// A rank that reduces eight bytes for ever. Rank 0 says every 100 ms how long a call took: the window's end, and the
// median and 99th percentile in us.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <rondo/rondo.hpp>

using Clock = std::chrono::steady_clock;

int main() {
  try {
    auto comm = rondo::Communicator::from_environment({.join_timeout = std::chrono::seconds(20)});
    std::vector<double> value(1, 1.0), took_us;
    std::puts("met within 0 ms");
    std::fflush(stdout);
    for (auto window = Clock::now();;) {
      const auto begun = Clock::now();
      comm.all_reduce(value, rondo::ReduceOp::max);
      const auto now = Clock::now();
      took_us.push_back(std::chrono::duration<double, std::micro>(now - begun).count());
      if (comm.rank() != 0 || now - window < std::chrono::milliseconds(100)) continue;
      std::sort(took_us.begin(), took_us.end());
      const auto at_us = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
      std::puts(
          fmt::format("window {} {:.1f} {:.1f}", at_us, took_us[took_us.size() / 2], took_us[took_us.size() * 99 / 100])
              .c_str());
      std::fflush(stdout);
      took_us.clear();
      window = now;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return 1;
  }
}
