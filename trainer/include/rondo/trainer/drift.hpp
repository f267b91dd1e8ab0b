// SPDX-License-Identifier: Apache-2.0
// Are the replicas still the same bits? Asked every so many steps; a difference is an error that names the tensor.
#pragma once
#include <cstdint>
#include <span>

#include <rondo/trainer/parameter.hpp>

namespace rondo::trainer {

// Looks whether all ranks hold the same bits. One thread at a time.
class RONDO_API DriftCheck {
 public:
  // `communicator` outlives it. every: steps from one check to the next, at least 1, or Error(invalid_argument).
  DriftCheck(Communicator& communicator, std::size_t every);

  // Collective; once per step, after the optimizer. Of libtorch's modules kept_equal(), of others all that the model
  // holds: parameters, frozen ones, buffers. Hashes all values, on a device too, and exchanges 8 bytes.
  // Error(mismatch), on every rank, naming the first tensor that differs and the ranks that hold other bits than most
  // do, or, where no most agree, than the lowest of the largest group.
  void after_step(std::span<const Parameter> parameters);
  void check(std::span<const Parameter> parameters);  // now

 private:
  Communicator& communicator_;
  std::size_t every_;
  std::size_t steps_ = 0;
};

// Of the values' bytes; not cryptographic. Copied to the host first where they are on a device.
// Error(invalid_argument) where they are said to be the CPU's, which cannot reach them.
RONDO_API std::uint64_t hash_values(const Parameter& parameter, Device device = {});

}  // namespace rondo::trainer
