// SPDX-License-Identifier: Apache-2.0
// What a training can go on from: epochs done, parameters, the optimizer's velocity, the loss scale. A run that is
// killed and started again ends with the bits of one that was not.
#pragma once
#include <optional>
#include <string>

#include <rondo/trainer.hpp>

#include "examples/fashion_mnist/network.hpp"

namespace fashion_mnist {

struct Progress {
  int epochs = 0;  // done
  double first_loss = 0, loss = 0;
};

// Collective. `run` names what must not differ between the runs.
void save(rondo::Communicator& host, const std::string& path, const std::string& run, const Progress& progress,
          Network& network, const rondo::trainer::LossScaler& scaler);
// Collective. Nothing: there is no such file where rank 0 is. std::runtime_error when it is of another run.
std::optional<Progress> resume(rondo::Communicator& host, const std::string& path, const std::string& run,
                               Network& network, rondo::trainer::LossScaler& scaler);

}  // namespace fashion_mnist
