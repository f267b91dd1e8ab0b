// SPDX-License-Identifier: Apache-2.0
// A classifier with one hidden layer: 784 -> 128, ReLU, -> 10, softmax and cross-entropy. Plain C++. The passes
// compute in float; parameters and sums over images are double. A sum in float depends on how a batch is split among
// ranks in its last bits, a ReLU turns that now and then into another step, and after an epoch the losses of different
// worlds differ by 1e-3.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "examples/fashion_mnist/dataset.hpp"

namespace fashion_mnist {

inline constexpr std::size_t kHidden = 128;

struct Tensor {
  const char* name;
  std::vector<double> values, gradient, velocity;
  std::vector<float> rounded;  // the values, as the passes use them
};

class Network {
 public:
  enum : std::size_t { weight1, bias1, weight2, bias2, kTensors };  // in the order of the forward pass

  // `rounding` takes numbers to the format that the passes compute in and back, for mixed precision: weights,
  // activations and gradients go through it, and the values that an update adds to are rounded to float. Null: double
  // values, passes in float.
  using Rounding = void (*)(std::span<float>);
  explicit Network(std::uint32_t seed, Rounding rounding = nullptr);
  std::array<Tensor, kTensors>& tensors() { return tensors_; }

  struct Score {
    double loss = 0;  // sum over the images
    std::size_t correct = 0;
  };
  // images: labels.size() * kPixels floats.
  Score forward(std::span<const float> images, std::span<const std::uint8_t> labels);
  // The class of each image of the batch that forward() saw last.
  const std::vector<std::uint8_t>& predicted() const { return predicted_; }
  // Gradients of the mean loss of that batch, times loss_scale; `ready` is told of each tensor's as it is complete, the
  // last layer's first.
  void backward(const std::function<void(std::size_t tensor)>& ready, double loss_scale = 1);
  // One step of gradient descent with momentum.
  void update(double learning_rate, double momentum);
  void round_values();  // after a change of values from outside

 private:
  double scale_output(double loss_scale);
  void round(std::vector<float>& numbers) const {
    if (rounding_ != nullptr) rounding_(numbers);
  }

  const Rounding rounding_;
  std::array<Tensor, kTensors> tensors_;
  std::vector<std::uint8_t> predicted_;
  std::vector<float> images_, hidden_, output_;  // of the last batch; output_ becomes d(loss)/d(output)
  std::vector<float> hidden_gradient_, weight2_transposed_;
};

}  // namespace fashion_mnist
