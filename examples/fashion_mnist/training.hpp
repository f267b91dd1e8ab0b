// SPDX-License-Identifier: Apache-2.0
// One rank's part of the training, and the proof of what it claims.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include <rondo/communicator.hpp>

#include "examples/fashion_mnist/precision.hpp"

namespace fashion_mnist {

struct Settings {
  int epochs = 2;
  std::size_t global_batch = 240;  // images of all ranks together in one step
  double learning_rate = 0.05;
  double momentum = 0.9;
  std::uint32_t seed = 0;
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::size_t limit = 0;        // images of the training set to use; 0: all
  double minimum_accuracy = 0;  // percent, claimed after the last epoch; 0: not claimed
  bool synchronise = true;      // false leaves every all_reduce out, and every claim must then fail
  Precision precision = Precision::full;
  double loss_scale = 65536;  // to begin with, where gradients are f16 or bf16
  std::string checkpoint{};   // written after each epoch, and gone on from where it is there; empty: none
  std::string label = "cpu";  // of the device that gradients go through, printed in every line that holds a time
};

// Collective. Trains, prints on rank 0 a line per epoch, one per claim, and a last one that starts with "result".
// Gradients are averaged by `gradients`, on its device; sums of the host go over `host`, of the same ranks, which may
// be the same communicator. Returns whether all claims hold. std::runtime_error when settings or data do not allow it.
bool train(rondo::Communicator& gradients, rondo::Communicator& host, const Settings& settings);

}  // namespace fashion_mnist
