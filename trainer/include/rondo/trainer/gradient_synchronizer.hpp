// SPDX-License-Identifier: Apache-2.0
// Averages gradients over the ranks while the backward pass still runs. Parameters are packed into buckets in reverse
// order of registration (the order in which a backward pass makes gradients); a bucket is reduced on the
// communicator's engine thread once all its gradients are ready. Buckets start in the same order on every rank, so
// ranks whose gradients become ready in different orders cannot deadlock. (The scheme of PyTorch DDP, VLDB 2020.)
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

// Both arrays are the caller's, of `count` elements, and outlive the synchronizer. Where the communicator is on a
// device they lie in device memory; gradients from Communicator::allocate are then averaged without a copy.
struct Parameter {
  std::string name;
  void* values = nullptr;  // broadcast from rank 0 at construction; null: left alone
  void* gradient = nullptr;
  std::size_t count = 0;
  DataType dtype = DataType::f32;  // a floating type
};

template <class T>
Parameter parameter(std::string name, std::span<T> values, std::span<T> gradient) {
  detail::check_size(Collective::all_reduce, name, values.size(), gradient.size());
  return {std::move(name), values.data(), gradient.data(), values.size(), data_type_of<T>};
}

struct SynchronizerOptions {
  std::size_t first_bucket_bytes = std::size_t{1} << 20;  // small, so that communication starts early
  std::size_t bucket_bytes = std::size_t{25} << 20;       // a parameter larger than a bucket is split
  bool broadcast_parameters = true;
  Stream stream = nullptr;  // of a device, where everything is enqueued; null: its default
};

class RONDO_API GradientSynchronizer {
 public:
  // Collective, on `communicator`, which must outlive this and be used by nobody else between the first ready() and
  // the end of finish(). Parameters are known by their index. Error(mismatch), on every rank, naming the parameter
  // and two ranks, when names, counts, dtypes, their order or the options differ between ranks.
  GradientSynchronizer(Communicator& communicator, std::vector<Parameter> parameters, SynchronizerOptions options = {});
  GradientSynchronizer(const GradientSynchronizer&) = delete;
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;
  ~GradientSynchronizer();  // waits for what was started; after a failure that is at once

  // The gradient of parameter `index` is complete; it is read before the call returns. On a device: it will be when the
  // stream has come so far; it must stay as it is until finish(), and nobody waits. Once per parameter and step, from
  // any thread, in any order. Error(invalid_argument) for a second time.
  void ready(std::size_t index);

  // Ends the step: returns when every gradient holds the average over all ranks, on a device too.
  // Error(invalid_argument) naming the parameters that were never ready; the step stays open, so they can still be made
  // ready. Errors of the communicator pass through.
  void finish();

  struct Progress {
    std::size_t ready = 0, parameters = 0;              // gradients of this step
    std::size_t started = 0, reduced = 0, buckets = 0;  // of this step; on a device finish() alone knows of `reduced`
    std::size_t steps = 0;                              // finished
    double exposed_seconds = 0;                         // time spent in finish(), all steps
  };
  Progress progress() const;  // any thread

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::trainer
