// SPDX-License-Identifier: Apache-2.0
// Post-local SGD (Lin and others, 2018): ranks train together at first, then by themselves or in small groups, and
// average their parameters now and then. For links between nodes that are much slower than those within.
//
//   auto hook = trainer::post_local_sgd({.start_step = 1000});            // then gradients stay on the node
//   rondo::DistributedDataParallel model(comm, net, {.hook = hook});
//   trainer::ModelAverager averager(comm, {.period = 8, .start_step = 1000});
//   ... optimizer.step(); averager.after_step(model.parameters());
#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include <rondo/trainer/bucket_hook.hpp>
#include <rondo/trainer/parameter.hpp>

namespace rondo::trainer {

// Of post_local_sgd(); the same on every rank, but for the group.
struct PostLocalSgdOptions {
  std::size_t start_step = 0;  // of the synchronizer; before it gradients are averaged over all ranks
  // Over whom they are averaged from then on: null, the ranks of this rank's node; else a communicator of the caller's
  // that outlives the hook and is used by nobody else between the first ready() and the end of finish().
  Communicator* group = nullptr;
  bool average_in_group = true;  // false: not at all
};

// From start_step on replicas differ until a ModelAverager makes them equal again, and a gradient is the average over
// this rank's group. Marks go to all ranks in every step, a few bytes: unused parameters, steps that do not match and
// ranks that have joined are seen as before, and buffers are broadcast by the synchronizer's options.
RONDO_API std::shared_ptr<BucketHook> post_local_sgd(PostLocalSgdOptions options);

// Of a ModelAverager; the same on every rank.
struct AveragerOptions {
  std::size_t period = 1;      // steps from one averaging to the next
  std::size_t start_step = 0;  // the first one; as the hook's
  Stream stream = nullptr;     // of a device
};

// Averages of more than one level are averagers of their own, each with its communicator (split) and its period.
class RONDO_API ModelAverager {
 public:
  // `communicator` outlives it. Error(invalid_argument) for a period of 0.
  ModelAverager(Communicator& communicator, AveragerOptions options);

  // Once per step, after the optimizer; collective when `step - start_step` is a multiple of the period: then the
  // values of `parameters`, the same ones on every rank, are their averages, and it returns true.
  // Error(invalid_argument) for values of an integer type.
  bool after_step(std::span<const Parameter> parameters);

  // For checkpoints. The hook's steps begin at 0 with each synchronizer: give it what is left of its start_step.
  std::size_t steps() const { return steps_; }
  void restore(std::size_t steps) { steps_ = steps; }

 private:
  Communicator& communicator_;
  AveragerOptions options_;
  std::size_t steps_ = 0;
};

}  // namespace rondo::trainer
