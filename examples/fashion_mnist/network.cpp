// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/network.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "examples/fashion_mnist/gemm.hpp"

namespace fashion_mnist {
namespace {

Tensor tensor(const char* name, std::size_t count) {
  const std::vector<double> zeros(count);
  return {name, zeros, zeros, zeros, std::vector<float>(count)};
}

// Uniform, scaled to the fan-in (He et al. 2015). Draws by hand: the standard's distributions differ between libraries.
void initialise(std::vector<double>& values, std::size_t fan_in, std::mt19937& engine) {
  const double bound = std::sqrt(6.0 / static_cast<double>(fan_in));
  for (double& v : values) v = (static_cast<double>(engine()) / 4294967296.0 * 2 - 1) * bound;
}

void fill_rows(std::vector<float>& matrix, std::size_t rows, const std::vector<float>& row) {
  matrix.resize(rows * row.size());
  for (std::size_t r = 0; r < rows; ++r)
    std::copy(row.begin(), row.end(), matrix.begin() + static_cast<std::ptrdiff_t>(r * row.size()));
}

void sum_rows(std::vector<double>& sum, const std::vector<float>& matrix) {
  std::fill(sum.begin(), sum.end(), 0.0);
  for (std::size_t i = 0; i < matrix.size(); i += sum.size()) {
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += static_cast<double>(matrix[i + j]);
  }
}

// Turns one image's logits into probabilities minus the wanted ones; returns -log of the label's probability.
double softmax_gradient(float* logits, std::size_t label) {
  const float most = *std::max_element(logits, logits + kClasses);
  double total = 0;
  for (std::size_t j = 0; j < kClasses; ++j) total += std::exp(static_cast<double>(logits[j] - most));
  const double loss = std::log(total) - static_cast<double>(logits[label] - most);
  for (std::size_t j = 0; j < kClasses; ++j) {
    logits[j] = static_cast<float>(std::exp(static_cast<double>(logits[j] - most)) / total);
  }
  logits[label] -= 1.0F;
  return loss;
}

}  // namespace

Network::Network(std::uint32_t seed, Rounding rounding)
    : rounding_(rounding),
      tensors_{tensor("hidden.weight", kPixels * kHidden), tensor("hidden.bias", kHidden),
               tensor("output.weight", kHidden * kClasses), tensor("output.bias", kClasses)} {
  std::mt19937 engine(seed);
  initialise(tensors_[weight1].values, kPixels, engine);
  initialise(tensors_[weight2].values, kHidden, engine);
  round_values();
}

Network::Score Network::forward(std::span<const float> images, std::span<const std::uint8_t> labels) {
  const std::size_t batch = labels.size();
  images_.assign(images.begin(), images.end());
  round(images_);
  fill_rows(hidden_, batch, tensors_[bias1].rounded);
  multiply_add(hidden_.data(), {images_.data(), kPixels, 1}, tensors_[weight1].rounded.data(), batch, kPixels, kHidden);
  for (float& h : hidden_) h = std::max(h, 0.0F);
  round(hidden_);
  fill_rows(output_, batch, tensors_[bias2].rounded);
  multiply_add(output_.data(), {hidden_.data(), kHidden, 1}, tensors_[weight2].rounded.data(), batch, kHidden,
               kClasses);

  Score score;
  predicted_.resize(batch);
  for (std::size_t i = 0; i < batch; ++i) {
    float* logits = output_.data() + i * kClasses;
    predicted_[i] = static_cast<std::uint8_t>(std::max_element(logits, logits + kClasses) - logits);
    score.correct += predicted_[i] == labels[i];
    score.loss += softmax_gradient(logits, labels[i]);
  }
  return score;
}

// What is left to divide sums over the batch by. Numbers of 16 bits are of the mean from the start, as a sum over the
// batch might overflow; otherwise sums are divided once, at their end.
double Network::scale_output(double loss_scale) {
  const auto batch = static_cast<double>(output_.size() / kClasses);
  if (rounding_ == nullptr) return batch / loss_scale;
  for (float& o : output_) o = static_cast<float>(static_cast<double>(o) * loss_scale / batch);
  round(output_);
  return 1;
}

void Network::backward(const std::function<void(std::size_t tensor)>& ready, double loss_scale) {
  const std::size_t batch = output_.size() / kClasses;
  const double divisor = scale_output(loss_scale);
  const auto done = [&](std::size_t tensor) {
    for (double& g : tensors_[tensor].gradient) g /= divisor;
    ready(tensor);
  };
  sum_rows(tensors_[bias2].gradient, output_);
  done(bias2);
  std::fill(tensors_[weight2].gradient.begin(), tensors_[weight2].gradient.end(), 0.0);
  multiply_add(tensors_[weight2].gradient.data(), {hidden_.data(), 1, kHidden}, output_.data(), kHidden, batch,
               kClasses);
  done(weight2);

  const std::vector<float>& weight = tensors_[weight2].rounded;
  weight2_transposed_.resize(weight.size());
  for (std::size_t i = 0; i < kHidden; ++i) {
    for (std::size_t j = 0; j < kClasses; ++j) weight2_transposed_[j * kHidden + i] = weight[i * kClasses + j];
  }
  hidden_gradient_.assign(batch * kHidden, 0.0F);
  multiply_add(hidden_gradient_.data(), {output_.data(), kClasses, 1}, weight2_transposed_.data(), batch, kClasses,
               kHidden);
  for (std::size_t i = 0; i < hidden_.size(); ++i) hidden_gradient_[i] = hidden_[i] > 0 ? hidden_gradient_[i] : 0.0F;
  round(hidden_gradient_);
  sum_rows(tensors_[bias1].gradient, hidden_gradient_);
  done(bias1);
  std::fill(tensors_[weight1].gradient.begin(), tensors_[weight1].gradient.end(), 0.0);
  multiply_add(tensors_[weight1].gradient.data(), {images_.data(), 1, kPixels}, hidden_gradient_.data(), kPixels, batch,
               kHidden);
  done(weight1);
}

void Network::update(double learning_rate, double momentum) {
  for (Tensor& t : tensors_) {
    for (std::size_t i = 0; i < t.values.size(); ++i) {
      t.velocity[i] = momentum * t.velocity[i] + t.gradient[i];
      t.values[i] -= learning_rate * t.velocity[i];
    }
  }
  round_values();
}

void Network::round_values() {
  for (Tensor& t : tensors_) {
    for (std::size_t i = 0; i < t.values.size(); ++i) t.rounded[i] = static_cast<float>(t.values[i]);
    if (rounding_ != nullptr) t.values.assign(t.rounded.begin(), t.rounded.end());
    round(t.rounded);
  }
}

}  // namespace fashion_mnist
