// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/scores.hpp"

#include <array>

#include "examples/fashion_mnist/dataset.hpp"

namespace fashion_mnist {

double macro_f1(std::span<const Prediction> predictions) {
  std::array<double, kClasses> hits{}, there{}, said{};
  for (const Prediction& p : predictions) {
    hits[p.label] += p.label == p.predicted;
    ++there[p.label];
    ++said[p.predicted];
  }
  double sum = 0, classes = 0;
  for (std::size_t c = 0; c < kClasses; ++c) {
    if (there[c] + said[c] == 0) continue;
    sum += 2 * hits[c] / (there[c] + said[c]);  // = 2 precision recall / (precision + recall)
    ++classes;
  }
  return classes == 0 ? 0 : sum / classes;
}

}  // namespace fashion_mnist
