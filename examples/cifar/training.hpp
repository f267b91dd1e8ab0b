// SPDX-License-Identifier: Apache-2.0
// One rank's part of the training.
#pragma once
#include <rondo/communicator.hpp>

#include "examples/cifar/dataset.hpp"

namespace cifar {

struct Settings {
  int epochs = 2;
  std::size_t batch = 100;  // of this rank
  double learning_rate = 0.02;
  double momentum = 0.9;
  std::size_t limit = 0;  // training images, 0: all
  double minimum_accuracy = 0;
};

// Collective. Rank 0 prints. False when the accuracy is not reached; rondo::Error when the replicas differ.
bool train(rondo::Communicator& communicator, const Dataset& training, const Dataset& test, const Settings& settings);

}  // namespace cifar
