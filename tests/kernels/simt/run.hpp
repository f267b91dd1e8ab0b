// SPDX-License-Identifier: Apache-2.0
// Lambdas as kernels.
#pragma once
#include <atomic>
#include <string>

#include "kernels/device/seam.cuh"
#include "kernels/simt/scheduler.hpp"
#include "tests/support/catch.hpp"

namespace rondo::test {

using namespace kernels::device;  // NOLINT: the seam, as kernels spell it

// Counts that lanes write without ordering anything: what ThreadSanitizer is to see are the seam's orders alone.
class Tally {
 public:
  unsigned operator++() { return *this += 1; }
  unsigned operator+=(unsigned by) { return count_.fetch_add(by, std::memory_order_relaxed) + by; }
  operator unsigned() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<unsigned> count_ = 0;
};

// A copy of `shape` whose lanes run `body`, which outlives the run.
template <class Body>
simt::GridSpec grid_of(simt::GridSpec shape, Body& body) {
  shape.body = [](void* argument) { (*static_cast<Body*>(argument))(); };
  shape.argument = &body;
  return shape;
}

struct Outcome {
  simt::Status status;
  std::string report;
  std::uint64_t steps, switches;
  bool says(const std::string& text) const { return report.find(text) != std::string::npos; }
};

template <class Body>
Outcome run(const simt::Options& options, const simt::GridSpec& shape, Body&& body) {
  simt::Scheduler scheduler(options);
  scheduler.add_grid(grid_of(shape, body));
  const simt::Status status = scheduler.run();
  return {status, scheduler.report(), scheduler.steps(), scheduler.switches()};
}

inline simt::Options exploring(simt::Policy policy, std::uint64_t seed, bool weak = false) {
  simt::Options options;
  options.policy = policy;
  options.seed = seed;
  options.explore = true;
  options.weak = weak;
  options.pct_steps = 500;
  options.max_steps = 1'000'000;
  return options;
}

}  // namespace rondo::test
