// SPDX-License-Identifier: Apache-2.0
// How good predictions are.
#pragma once
#include <cstdint>
#include <span>

namespace fashion_mnist {

struct Prediction {
  std::uint8_t label = 0, predicted = 0;
};

// The mean over the classes of the harmonic mean of precision and recall. No average of parts' scores gives it: it
// needs every prediction in one place. Classes that are neither there nor predicted do not count.
double macro_f1(std::span<const Prediction> predictions);

}  // namespace fashion_mnist
