// SPDX-License-Identifier: Apache-2.0
// When the parts of a step took place on this rank, and the sums over all steps.
#pragma once
#include <chrono>
#include <cstddef>
#include <vector>

namespace rondo::trainer {

// One bucket of a step. A hook that works in rounds makes one of each; bytes are those of the first.
struct BucketRecord {
  std::size_t index = 0;                              // of the bucket
  std::size_t bytes = 0;                              // of its gradients
  std::chrono::steady_clock::time_point submitted{};  // when its last gradient was ready
  // On the engine thread, or on the stream of a device; equal where that is its default stream: not known.
  std::chrono::steady_clock::time_point started{};
  std::chrono::steady_clock::time_point finished{};
};

// One step of a GradientSynchronizer.
struct StepRecord {
  using Clock = std::chrono::steady_clock;  // of all times here
  std::size_t step = 0;                     // its number, from 0
  Clock::time_point forward{};              // begin_forward(), else the end of the step before
  Clock::time_point backward{};             // begin_backward(), else the first ready()
  Clock::time_point finish{};               // the call of finish(): until its end communication was exposed
  Clock::time_point end{};                  // gradients are averages
  std::vector<BucketRecord> buckets{};      // in the order of their start

  // A duration in seconds, and those of the parts of the step.
  static double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }
  double forward_seconds() const { return seconds(backward - forward); }
  double backward_seconds() const { return seconds(finish - backward); }
  double exposed_seconds() const { return seconds(end - finish); }
  double communication_seconds() const {  // while a bucket was being reduced; they run one after the other
    double sum = 0;
    for (const BucketRecord& bucket : buckets) sum += seconds(bucket.finished - bucket.started);
    return sum;
  }
  // Of all buckets.
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const BucketRecord& bucket : buckets) sum += bucket.bytes;
    return sum;
  }
};

// Sums over `steps`, which steps under no_sync() are not among.
struct Statistics {
  std::size_t steps = 0;             // that were added
  double forward_seconds = 0;        // until the backward pass
  double backward_seconds = 0;       // until finish()
  double communication_seconds = 0;  // while a bucket was being reduced
  double exposed_seconds = 0;        // in finish()
  std::size_t buckets = 0;           // that were reduced
  std::size_t bytes = 0;             // of gradients

  // One step more.
  void add(const StepRecord& record) {
    ++steps;
    forward_seconds += record.forward_seconds();
    backward_seconds += record.backward_seconds();
    communication_seconds += record.communication_seconds();
    exposed_seconds += record.exposed_seconds();
    buckets += record.buckets.size();
    bytes += record.bytes();
  }
};

}  // namespace rondo::trainer
