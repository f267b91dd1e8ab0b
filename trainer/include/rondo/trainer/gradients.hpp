// SPDX-License-Identifier: Apache-2.0
// What is done with averaged gradients before the optimizer: clipping by the global norm, and dynamic loss scaling for
// gradients of 16 bits. All ranks hold the same bits after finish(), so they decide the same without asking; gradients
// that are not averaged (sharded ones) need the communicator.
// The list is GradientSynchronizer::averaged() or DistributedDataParallel::parameters(): a null gradient says that the
// step gave the parameter none, so it is passed over. Error(invalid_argument) where a gradient is not in memory that
// the CPU reaches, or not of a type that can be scaled; then none was changed.
#pragma once
#include <span>

#include <rondo/trainer/parameter.hpp>

namespace rondo::trainer {

// The square root of the sum of all squares, summed in double.
RONDO_API double gradient_norm(std::span<const Parameter> parameters);

// Scales all gradients so that their norm is at most `maximum`; returns the norm they had. Norms that are not finite
// leave them alone. Error(invalid_argument) where `maximum` is negative or not a number.
RONDO_API double clip_gradients(std::span<const Parameter> parameters, double maximum);

// Of a LossScaler; as torch.cuda.amp.GradScaler has them, with bounds.
struct ScalerOptions {
  double scale = 65536;         // the first
  double growth = 2;            // after `interval` good steps in a row
  double backoff = 0.5;         // after a step with an infinity or a NaN
  std::size_t interval = 2000;  // steps
  double minimum = 1;           // of the scale
  double maximum = 16777216;    // of the scale
};

// loss * scaler.scale() is differentiated; after finish(): if (scaler.unscale(parameters)) optimizer.step();
class RONDO_API LossScaler {
 public:
  // The same options on every rank. Error(invalid_argument) naming the field: a scale or bound that is not positive,
  // growth below 1, backoff not in (0, 1], an interval of 0, a maximum below the minimum.
  explicit LossScaler(ScalerOptions options = {});
  double scale() const { return scale_; }  // of the step that begins now
  // Divides all gradients by the scale and says whether all were finite; chooses the next scale. An infinity or a NaN
  // of one rank is in everybody's average, so that all ranks skip the same steps. With a communicator it is collective:
  // true when gradients of all ranks were finite.
  bool unscale(std::span<const Parameter> parameters, Communicator* communicator = nullptr);
  std::size_t skipped() const { return skipped_; }  // steps that were not finite, so far
  // For checkpoints. Error(invalid_argument) for a scale that is not a positive number.
  std::size_t good_steps() const { return good_steps_; }
  void restore(double scale, std::size_t good_steps);

 private:
  ScalerOptions options_;
  double scale_;
  std::size_t good_steps_ = 0, skipped_ = 0;
};

}  // namespace rondo::trainer
