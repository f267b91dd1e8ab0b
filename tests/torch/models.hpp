// SPDX-License-Identifier: Apache-2.0
// Small modules with given values, ranks as threads, and what a step on one process would give.
#pragma once
#include <string>
#include <vector>

#include "tests/support/ranks.hpp"
#include "tests/torch/torch.hpp"

namespace rondo::test {

inline constexpr std::chrono::seconds kTorchDeadline{30};

// Values of no pattern, a function of the seed: libtorch's generator is shared by the ranks of a process.
inline torch::Tensor noise(torch::IntArrayRef shape, double seed, torch::ScalarType type = torch::kDouble) {
  const torch::Tensor places = torch::arange(c10::multiply_integers(shape), torch::kDouble);
  return torch::sin(places * 12.9898 + seed * 78.233).reshape(shape).to(type);
}
inline void fill(torch::nn::Module& module, double seed) {
  const torch::NoGradGuard guard;
  for (auto& p : module.parameters()) p.copy_(noise(p.sizes(), seed++));
}

// 6 inputs, 8 hidden, 3 outputs.
inline torch::nn::Sequential toy(double seed, torch::ScalarType type = torch::kDouble) {
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
  net->to(type);
  fill(*net, seed);
  return net;
}
inline torch::Tensor loss_of(torch::nn::Sequential& net, const torch::Tensor& x) {
  return torch::mse_loss(net->forward(x), torch::tanh(x.narrow(1, 0, 3) * 2));
}

struct TwoBranchesImpl : torch::nn::Module {
  TwoBranchesImpl() {
    left = register_module("left", torch::nn::Linear(4, 1));
    right = register_module("right", torch::nn::Linear(4, 1));
    nobody = register_module("nobody", torch::nn::Linear(4, 1));
    to(torch::kDouble);
  }
  torch::nn::Linear left{nullptr}, right{nullptr}, nobody{nullptr};
};
TORCH_MODULE(TwoBranches);

// What each rank threw, empty where nothing.
template <class Body>
std::vector<std::string> torch_ranks(int world_size, Body body, Options options = {.timeout = kTorchDeadline}) {
  std::vector<std::string> all;
  for (const auto& error : run_ranks(world_size, options, body)) all.push_back(sentence_of(error));
  return all;
}
inline std::vector<std::string> nothing(int world_size) {
  return std::vector<std::string>(static_cast<std::size_t>(world_size));
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace rondo::test
