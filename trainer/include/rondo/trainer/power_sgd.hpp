// SPDX-License-Identifier: Apache-2.0
// PowerSGD (Vogels, Karimireddy, Jaggi, 2019), as PyTorch's hook does it: a gradient of n x m elements is sent as two
// factors of r * n and r * m. For links so slow that the arithmetic pays, and models whose weights are large matrices.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rondo/trainer/bucket_hook.hpp>

namespace rondo::trainer {

// Of power_sgd(); names and meaning are PyTorch's. The same on every rank.
struct PowerSgdOptions {
  std::size_t matrix_approximation_rank = 1;  // r; the larger, the nearer to the average
  std::size_t start_step = 1000;              // of the synchronizer, at least 1; plain averages before it
  double min_compression_rate = 2;            // a matrix is compressed where r * (n + m) * rate < n * m
  bool use_error_feedback = true;             // what a step lost is added to the next one; as much memory as gradients
  bool warm_start = true;                     // a step begins with the factor that the one before ended with
  double orthogonalization_epsilon = 0;       // added to the length of each column by which it is divided
  std::uint32_t random_seed = 0;              // of the first factor: the numbers of PyTorch's hook
};

// Gradients are matrices of shape[0] rows, where that is worth it by the rate; of one that is split among buckets,
// whole rows that lie in one bucket are a matrix of their own. All others, and those of types other than f32 and f64,
// are averaged as they are. A gradient of zeros alone on all ranks, as of a parameter that nobody used, leaves what
// earlier steps lost for later ones. An infinity or a NaN reaches all ranks in its step and ends there: what was kept
// of that matrix is dropped. What is kept goes with the synchronizer, and is not in checkpoints.
// Error(invalid_argument) for options that make no sense, and where gradients are in device memory.
RONDO_API std::shared_ptr<BucketHook> power_sgd(PowerSgdOptions options);

}  // namespace rondo::trainer
