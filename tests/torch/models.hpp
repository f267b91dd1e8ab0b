// SPDX-License-Identifier: Apache-2.0
// Small modules with given values, ranks as threads, and what a step on one process would give.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/expect.hpp"
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
// The same over TCP: every rank is a node of its own.
template <class Body>
std::vector<std::string> torch_nodes(int world_size, Body body) {
  static int worlds = 0;
  const auto meeting = std::filesystem::temp_directory_path() /
                       ("rondo-torch-" + std::to_string(::getpid()) + "-" + std::to_string(worlds++));
  std::vector<std::string> all(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] {
      all[static_cast<std::size_t>(r)] = sentence_of(thrown_by([&] {
        Communicator comm =
            Communicator::create({.rank = r, .world_size = world_size, .url = "file://" + meeting.string()},
                                 {.timeout = kTorchDeadline, .node = "node" + std::to_string(r)});
        if (comm.local_size() != 1) throw std::runtime_error("ranks are on one node, which is not over TCP");
        body(comm);
      }));
    });
  }
  for (auto& thread : threads) thread.join();
  std::filesystem::remove(meeting);
  return all;
}
inline std::vector<std::string> nothing(int world_size) {
  return std::vector<std::string>(static_cast<std::size_t>(world_size));
}

}  // namespace rondo::test
