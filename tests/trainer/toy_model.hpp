// SPDX-License-Identifier: Apache-2.0
// A network with one hidden layer and a mean squared error, small enough to be trained hundreds of times, and with
// samples that are a function of their number.
#pragma once
#include <array>
#include <bitset>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <rondo/trainer/parameter.hpp>

namespace rondo::test {

template <class T>
class ToyModel {
 public:
  enum : std::size_t { w1, b1, w2, b2, kTensors };
  static constexpr std::size_t kInputs = 6, kHidden = 8, kOutputs = 3;

  explicit ToyModel(unsigned seed) {
    const std::array<std::size_t, kTensors> counts = {kInputs * kHidden, kHidden, kHidden * kOutputs, kOutputs};
    for (std::size_t t = 0; t < kTensors; ++t) {
      gradient[t].resize(counts[t]);
      for (std::size_t i = 0; i < counts[t]; ++i) values[t].push_back(noise(seed + 100 * t + i) / 2);
    }
  }

  using Tensors = std::bitset<kTensors>;

  // Gradients of the mean over samples [first, first + count); the earlier ones are overwritten.
  void backward(std::size_t first, std::size_t count) {
    backward(first, count, [](std::size_t) { return ~Tensors(); });
  }
  // The same, where a sample adds to those tensors alone that used_by(sample) says.
  template <class UsedBy>
  void backward(std::size_t first, std::size_t count, UsedBy used_by) {
    for (auto& g : gradient) g.assign(g.size(), T(0));
    for (std::size_t s = first; s < first + count; ++s) add_sample(s, T(1) / static_cast<T>(count), used_by(s));
  }
  void update(std::size_t tensor, T learning_rate) {
    for (std::size_t i = 0; i < values[tensor].size(); ++i) values[tensor][i] -= learning_rate * gradient[tensor][i];
  }
  std::vector<trainer::Parameter> parameters() {
    const char* const names[] = {"hidden.weight", "hidden.bias", "output.weight", "output.bias"};
    std::vector<trainer::Parameter> all;
    for (std::size_t t = 0; t < kTensors; ++t)
      all.push_back(trainer::parameter(names[t], std::span(values[t]), std::span(gradient[t])));
    return all;
  }
  double loss(std::size_t samples) {
    double sum = 0;
    for (std::size_t s = 0; s < samples; ++s) {
      forward(s);
      for (std::size_t o = 0; o < kOutputs; ++o) sum += static_cast<double>(error_[o] * error_[o]);
    }
    return sum / static_cast<double>(samples);
  }

  std::array<std::vector<T>, kTensors> values, gradient;

 private:
  static T noise(std::size_t n) {
    const std::size_t mixed = (n + 1) * 2654435761U % 4294967296U;
    return static_cast<T>(mixed) / T(2147483648) - T(1);
  }
  static T input(std::size_t sample, std::size_t i) { return noise(sample * 31 + i + 5000); }
  static T target(std::size_t sample, std::size_t o) { return std::sin(input(sample, o) * 2) + input(sample, o + 3); }

  void forward(std::size_t sample) {
    for (std::size_t h = 0; h < kHidden; ++h) {
      T sum = values[b1][h];
      for (std::size_t i = 0; i < kInputs; ++i) sum += values[w1][h * kInputs + i] * input(sample, i);
      hidden_[h] = std::tanh(sum);
    }
    for (std::size_t o = 0; o < kOutputs; ++o) {
      T sum = values[b2][o];
      for (std::size_t h = 0; h < kHidden; ++h) sum += values[w2][o * kHidden + h] * hidden_[h];
      error_[o] = sum - target(sample, o);
    }
  }
  void add_sample(std::size_t sample, T weight, Tensors used) {
    forward(sample);
    const auto add = [&](std::size_t tensor, std::size_t i, T value) {
      if (used[tensor]) gradient[tensor][i] += value;
    };
    for (std::size_t h = 0; h < kHidden; ++h) {
      T back = 0;
      for (std::size_t o = 0; o < kOutputs; ++o) {
        const T d = 2 * error_[o] * weight;
        back += d * values[w2][o * kHidden + h];
        add(w2, o * kHidden + h, d * hidden_[h]);
        if (h == 0) add(b2, o, d);
      }
      back *= 1 - hidden_[h] * hidden_[h];
      add(b1, h, back);
      for (std::size_t i = 0; i < kInputs; ++i) add(w1, h * kInputs + i, back * input(sample, i));
    }
  }

  std::array<T, kHidden> hidden_{};
  std::array<T, kOutputs> error_{};
};

}  // namespace rondo::test
