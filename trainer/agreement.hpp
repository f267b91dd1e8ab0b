// SPDX-License-Identifier: Apache-2.0
// Do all ranks train the same model? Asked once, before anything is reduced.
#pragma once
#include <vector>

#include <rondo/trainer/gradient_synchronizer.hpp>

namespace rondo::trainer {

// Collective. Error(mismatch), the same on every rank, naming the parameter and two ranks.
RONDO_API void check_agreement(Communicator& communicator, const std::vector<Parameter>& parameters,
                               const SynchronizerOptions& options);

}  // namespace rondo::trainer
