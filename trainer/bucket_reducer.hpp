// SPDX-License-Identifier: Apache-2.0
// How full buckets are averaged. On the CPU their gradients are copied together and reduced by the communicator's
// engine thread; on a device every gradient is reduced where it lies, those of a bucket as one group, on a stream.
#pragma once
#include <memory>
#include <vector>

#include "trainer/buckets.hpp"

namespace rondo::trainer {

class BucketReducer {
 public:
  // Collective. All three outlive it.
  static std::unique_ptr<BucketReducer> make(Communicator& communicator, const std::vector<Parameter>& parameters,
                                             const std::vector<BucketPlan>& buckets, Stream stream);
  virtual ~BucketReducer() = default;  // waits for what was started; after a failure that is at once

  virtual void begin_step() = 0;
  virtual void take(std::size_t bucket, const Piece& piece) = 0;  // its gradient is complete; any thread
  virtual void start(std::size_t bucket) = 0;                     // in order; every piece was taken
  virtual void finish() = 0;                                      // gradients of what was started hold their averages
  virtual std::size_t reduced() const = 0;                        // buckets of this step that are known to be
};

}  // namespace rondo::trainer
