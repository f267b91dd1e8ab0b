// SPDX-License-Identifier: Apache-2.0
// What happens to a full bucket, where that is not a plain all_reduce: another format on the wire, or an algorithm of
// the user's own. See <rondo/trainer/wire.hpp>.
#pragma once
#include <cstddef>
#include <span>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

// Gradients side by side, a few elements of padding that nobody reads, and in the last bucket the marks by which
// ranks find unused parameters.
struct Bucket {
  std::size_t index = 0;
  std::byte* data = nullptr;  // the communicator's own memory (allocate), on its device
  std::size_t count = 0;
  DataType dtype = DataType::f32;
  Stream stream = nullptr;
};

class BucketHook {
 public:
  virtual ~BucketHook() = default;
  // Collective, before the first start() and whenever the buckets change. All buckets, in the order of their index.
  virtual void prepare(Communicator& communicator, std::span<const Bucket> buckets) = 0;
  // In ready() or finish(), in the same order on every rank. After finish() every element of the bucket is the average
  // over the ranks, as nearly as the hook cares; a positive average must not become zero. On a device the Work is
  // empty and all is enqueued on the bucket's stream.
  virtual Work start(Communicator& communicator, const Bucket& bucket) = 0;
  // In finish() of the synchronizer, when the Work is done.
  virtual void finish(const Bucket& bucket) = 0;
};

}  // namespace rondo::trainer
