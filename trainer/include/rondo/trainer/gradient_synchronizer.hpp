// SPDX-License-Identifier: Apache-2.0
// Averages gradients over the ranks while the backward pass still runs. Parameters are packed into buckets in reverse
// order of registration (the order in which a backward pass makes gradients), after the first step in the order in
// which rank 0 really made them; a bucket is reduced on the communicator's engine thread once all its gradients are
// ready. Buckets start in the same order on every rank, so ranks whose gradients become ready in different orders
// cannot deadlock. (The scheme of PyTorch DDP, VLDB 2020.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rondo/trainer/bucket_hook.hpp>
#include <rondo/trainer/parameter.hpp>
#include <rondo/trainer/step_record.hpp>

namespace rondo::trainer {

// Of a GradientSynchronizer; the same on every rank, but for addresses and the stream.
struct SynchronizerOptions {
  std::size_t first_bucket_bytes = std::size_t{1} << 20;  // small, so that communication starts early
  std::size_t bucket_bytes = std::size_t{25} << 20;       // a parameter larger than a bucket is split
  bool broadcast_parameters = true;                       // rank 0's values, at the construction
  Stream stream = nullptr;  // of a device, where everything is enqueued; null: its default
  // No gradient arrays of the caller: gradient() gives each its place in a bucket, where it is averaged without a copy.
  bool gradients_in_buckets = false;
  std::vector<Parameter> buffers{};         // state that is not trained (running means): broadcast with the parameters
  bool broadcast_buffers_each_step = true;  // at the end of finish(), from the lowest rank that still has batches
  std::shared_ptr<BucketHook> hook{};       // null: all_reduce
  // Each rank uses in every step the parameters that it used in its first one; Error(mismatch), on every rank, that
  // names the others.
  bool static_graph = false;
};

// One rank's part. One thread at a time, but for ready() and progress().
class RONDO_API GradientSynchronizer {
 public:
  // Collective, on `communicator`, which must outlive this and be used by nobody else between the first ready() and
  // the end of finish(). Parameters are known by their index. Error(mismatch), on every rank, naming the parameter
  // and two ranks, when names, counts, shapes, dtypes, their order or the options differ between ranks.
  GradientSynchronizer(Communicator& communicator, std::vector<Parameter> parameters, SynchronizerOptions options = {});
  GradientSynchronizer(const GradientSynchronizer&) = delete;
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;
  // Inside a step (an exception in the backward pass) it aborts the communicator: the others wait for this rank's
  // gradients, and an error is better than that.
  ~GradientSynchronizer();

  // The gradient of parameter `index` is complete; it is read before the call returns. On a device, or where it lives
  // in a bucket: it will be read later and must stay as it is until finish(). On a device nobody waits. Once per
  // parameter and step, from any thread, in any order. Error(invalid_argument) for a second time.
  void ready(std::size_t index);

  // Ends the step: returns when every gradient holds the average over all ranks, on a device too. A parameter that was
  // not ready counts as zeros; one that was ready on no rank keeps its gradient as it is. Errors of the communicator
  // pass through. Error(mismatch), on every rank, when ranks are in different steps.
  void finish();

  // For ranks whose batches end sooner than others': called instead of ready() and finish() when this rank has no
  // batch any more, until it says false. True: others made a step, gradients hold its averages, so that this rank's
  // optimizer steps as theirs do. False: no rank has batches any more; gradients are as they were.
  bool join_step();
  template <class AfterStep>
  void join(AfterStep&& after_step) {
    while (join_step()) after_step();
  }

  // While one lives, ready() and finish() only note what was used: gradients add up in the caller's hands until the
  // first finish() without.
  class [[nodiscard]] NoSync {
   public:
    // As no_sync().
    explicit NoSync(GradientSynchronizer& synchronizer)
        : synchronizer_(synchronizer), before_(synchronizer.pause(true)) {}
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync() { synchronizer_.pause(before_); }

   private:
    GradientSynchronizer& synchronizer_;
    bool before_;
  };
  // Until what it returns goes, which must be before this; they may be nested.
  NoSync no_sync() { return NoSync(*this); }

  const std::vector<Parameter>& parameters() const;  // with the places of gradients that live in buckets
  // Where it lives, for T of the parameter's dtype; valid until the buckets change. Error(invalid_argument): another T.
  template <class T>
  std::span<T> gradient(std::size_t index) const {
    return {static_cast<T*>(typed(index, data_type_of<T>)), parameters()[index].count};
  }

  // Buffer `index` of the options lies elsewhere from now on. Not while finish() runs. Error(invalid_argument).
  void move_buffer(std::size_t index, void* values);

  // The same after the last step, with a null gradient where no rank had one: what lies there is no gradient of this
  // step. For clip_gradients, LossScaler and ShardedOptimizer::step.
  std::vector<Parameter> averaged() const;

  // Of the last step, by index: not ready on this rank; not ready on any rank.
  const std::vector<std::size_t>& unused_here() const;
  const std::vector<std::size_t>& unused_everywhere() const;

  // Marks for the statistics, which do without them; see StepRecord.
  void begin_forward();
  // The same, with the caller's own number of the batch to come. finish() tells all ranks when they are in different
  // ones, as after a `continue` on one of them; without a number such a rank is missed only when the others go on after
  // its last step. Numbers are compared modulo 16.
  void begin_forward(std::uint64_t batch);
  void begin_backward();
  const StepRecord& last_step() const;
  const Statistics& statistics() const;

  // How far this step is.
  struct Progress {
    std::size_t ready = 0;       // gradients
    std::size_t parameters = 0;  // so many gradients there will be
    std::size_t started = 0;     // buckets
    std::size_t reduced = 0;     // buckets; on a device finish() alone knows
    std::size_t buckets = 0;     // in all
  };
  Progress progress() const;  // any thread

 private:
  bool pause(bool on);  // what it was before
  void* typed(std::size_t index, DataType dtype) const;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::trainer
