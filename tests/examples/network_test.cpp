// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/network.hpp"

#include <cmath>
#include <random>

#include "examples/fashion_mnist/gemm.hpp"
#include "tests/support/catch.hpp"

namespace {

using fashion_mnist::Network;

std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(engine() % 2001) / 1000.0F - 1.0F;
  return values;
}

// Small integers, so that every order of summation gives the exact result.
template <class Real>
void check_products(std::size_t rows, std::size_t columns) {
  const std::size_t inner = 13;
  std::vector<float> a(rows * inner), b(inner * columns), transposed(inner * rows);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 2;
  const std::vector<Real> start(rows * columns, Real{1});
  std::vector<Real> expected = start;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < inner; ++k) {
      transposed[k * rows + i] = a[i * inner + k];
      for (std::size_t j = 0; j < columns; ++j) {
        expected[i * columns + j] += static_cast<Real>(a[i * inner + k] * b[k * columns + j]);
      }
    }
  }
  std::vector<Real> c = start;
  fashion_mnist::multiply_add(c.data(), {a.data(), inner, 1}, b.data(), rows, inner, columns);
  CHECK(c == expected);
  c = start;
  fashion_mnist::multiply_add(c.data(), {transposed.data(), 1, rows}, b.data(), rows, inner, columns);
  CHECK(c == expected);
}

}  // namespace

TEST_CASE("the blocked product equals the plain one, for every remainder and transposed") {
  for (const std::size_t rows : {1U, 2U, 3U, 4U, 9U}) {
    for (const std::size_t columns : {1U, 7U, 8U, 19U}) {
      check_products<float>(rows, columns);
      check_products<double>(rows, columns);
    }
  }
}

TEST_CASE("gradients are the slopes of the loss") {
  Network network(1);
  const std::vector<std::uint8_t> labels{3, 0, 9, 3, 7};
  const std::vector<float> images = random_floats(labels.size() * fashion_mnist::kPixels, 2);
  network.forward(images, labels);
  network.backward([](std::size_t) {});
  std::mt19937 engine(3);
  for (std::size_t t = 0; t < Network::kTensors; ++t) {
    auto& tensor = network.tensors()[t];
    for (int trial = 0; trial < 20; ++trial) {
      const std::size_t i = engine() % tensor.values.size();
      const double value = tensor.values[i], step = 0.001;
      tensor.values[i] = value + step;
      network.round_values();
      const double above = network.forward(images, labels).loss;
      tensor.values[i] = value - step;
      network.round_values();
      const double below = network.forward(images, labels).loss;
      tensor.values[i] = value;
      network.round_values();
      const double slope = (above - below) / (2.0 * step) / static_cast<double>(labels.size());
      INFO(tensor.name << "[" << i << "]");
      CHECK(std::abs(slope - tensor.gradient[i]) < 2e-3 + 0.02 * std::abs(slope));
    }
  }
}

TEST_CASE("gradients become ready from the last layer to the first, each once") {
  Network network(1);
  const std::vector<std::uint8_t> labels{1};
  network.forward(random_floats(fashion_mnist::kPixels, 1), labels);
  std::vector<std::size_t> order;
  network.backward([&](std::size_t tensor) { order.push_back(tensor); });
  CHECK(order == std::vector<std::size_t>{Network::bias2, Network::weight2, Network::bias1, Network::weight1});
}

TEST_CASE("a batch's gradient is the mean of its parts' gradients to the last bits of a double") {
  Network whole(6), part(6);
  const std::vector<std::uint8_t> labels{3, 0, 9, 3, 7, 1};
  const std::vector<float> images = random_floats(labels.size() * fashion_mnist::kPixels, 7);
  whole.forward(images, labels);
  whole.backward([](std::size_t) {});
  std::vector<std::vector<double>> sum(Network::kTensors);
  for (std::size_t first = 0; first < labels.size(); first += 2) {
    part.forward(std::span(images).subspan(first * fashion_mnist::kPixels, 2 * fashion_mnist::kPixels),
                 std::span(labels).subspan(first, 2));
    part.backward([](std::size_t) {});
    for (std::size_t t = 0; t < Network::kTensors; ++t) {
      sum[t].resize(part.tensors()[t].gradient.size());
      for (std::size_t i = 0; i < sum[t].size(); ++i) sum[t][i] += part.tensors()[t].gradient[i] / 3;
    }
  }
  double worst = 0;
  for (std::size_t t = 0; t < Network::kTensors; ++t) {
    for (std::size_t i = 0; i < sum[t].size(); ++i) {
      worst = std::max(worst, std::abs(sum[t][i] - whole.tensors()[t].gradient[i]));
    }
  }
  CHECK(worst < 1e-14);
}

TEST_CASE("one batch learnt again and again is learnt by heart") {
  Network network(4);
  const std::vector<std::uint8_t> labels{3, 0, 9, 3, 7};
  const std::vector<float> images = random_floats(labels.size() * fashion_mnist::kPixels, 5);
  const double before = network.forward(images, labels).loss;
  for (int step = 0; step < 50; ++step) {
    network.forward(images, labels);
    network.backward([](std::size_t) {});
    network.update(0.02, 0.9);
  }
  const Network::Score after = network.forward(images, labels);
  CHECK(after.loss < 0.1 * before);
  CHECK(after.correct == labels.size());
}
