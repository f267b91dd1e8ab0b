// SPDX-License-Identifier: Apache-2.0
// What happens to a full bucket, where that is not a plain all_reduce: another format on the wire, or an algorithm of
// the user's own. See <rondo/trainer/wire.hpp>, <rondo/trainer/local_sgd.hpp>, <rondo/trainer/power_sgd.hpp>.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

// A gradient in a bucket, or the part of it that lies there.
struct BucketPart {
  std::size_t parameter = 0;             // its index
  std::size_t first = 0;                 // element of the gradient
  std::size_t offset = 0;                // element of the bucket
  std::size_t count = 0;                 // elements
  std::span<const std::size_t> shape{};  // of the whole parameter
};

// Gradients side by side, a few elements of padding that nobody reads, and in the last bucket the marks by which
// ranks find unused parameters and one another's steps.
struct Bucket {
  std::size_t index = 0;                // in the order in which buckets start
  std::byte* data = nullptr;            // the communicator's own memory (allocate), on its device
  std::size_t count = 0;                // elements
  DataType dtype = DataType::f32;       // of all its gradients
  Stream stream = nullptr;              // on a device: where everything is enqueued
  std::span<const BucketPart> parts{};  // in the order in which they lie there; valid until the buckets change
  std::size_t marks = 0;                // elements at the end, of `count`: ones and zeros
  std::size_t step = 0;                 // of the synchronizer, from 0; the same on every rank
};

// What a synchronizer does with its buckets. A hook is of one synchronizer. Its calls come from one thread at a time,
// in the same order on every rank.
class BucketHook {
 public:
  virtual ~BucketHook() = default;
  // Compared between ranks when the synchronizer is made.
  virtual std::string description() const { return "a hook"; }
  // Collective, before the first start() and whenever the buckets change. All buckets, in the order of their index.
  virtual void prepare(Communicator& communicator, std::span<const Bucket> buckets) = 0;
  // In ready() or finish(). After finish() every element of the bucket is the average over the ranks, as nearly as the
  // hook cares; of marks a positive average over all ranks must not become zero. On a device the Work is empty and all
  // is enqueued on the bucket's stream.
  virtual Work start(Communicator& communicator, const Bucket& bucket) = 0;
  // In finish() of the synchronizer, when the Work is done, again and again until it starts no other one: for what
  // takes several collectives. All buckets are asked in turns.
  virtual std::optional<Work> proceed(Communicator&, const Bucket&) { return std::nullopt; }
  // In finish() of the synchronizer, when all of that is done.
  virtual void finish(const Bucket& bucket) = 0;
};

}  // namespace rondo::trainer
