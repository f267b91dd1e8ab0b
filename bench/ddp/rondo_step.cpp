// SPDX-License-Identifier: Apache-2.0
// Times of training steps with rondo::DistributedDataParallel, with and without communication, for bench/ddp_compare.
// gloo_step.py beside this file is the same program for PyTorch's.   rondo_step MODEL BLOCKS STEPS none|zeros
#include <torch/torch.h>
#include <CLI/CLI.hpp>
#include <rondo/rondo.hpp>

#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <rondo/torch.hpp>
#include <string>

#include "tools/command_line.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using torch::Tensor;

torch::nn::Sequential conv_net() {
  using namespace torch::nn;
  return Sequential(Conv2d(Conv2dOptions(3, 6, 5)), ReLU(), MaxPool2d(MaxPool2dOptions(2)),
                    Conv2d(Conv2dOptions(6, 16, 5)), ReLU(), MaxPool2d(MaxPool2dOptions(2)), Flatten(),
                    Linear(400, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10));
}
torch::nn::Sequential mlp() {  // 25 million parameters
  using namespace torch::nn;
  return Sequential(Linear(1024, 3072), ReLU(), Linear(3072, 4096), ReLU(), Linear(4096, 2240), ReLU(),
                    Linear(2240, 10));
}

class Steps {
 public:
  Steps(torch::nn::Sequential net, Tensor images, bool to_none)
      : net_(std::move(net)),
        images_(std::move(images)),
        labels_(torch::randint(0, 10, {images_.size(0)}, torch::kLong)),
        optimizer_(net_->parameters(), torch::optim::SGDOptions(1e-4)),
        to_none_(to_none) {}

  double milliseconds() {
    const auto start = Clock::now();
    const Tensor loss = torch::cross_entropy_loss(net_->forward(images_), labels_);
    net_->zero_grad(to_none_);
    loss.backward();
    optimizer_.step();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }

 private:
  torch::nn::Sequential net_;
  Tensor images_, labels_;
  torch::optim::SGD optimizer_;
  bool to_none_;
};

void print(const char* name, const std::vector<double>& values) {
  std::printf(", \"%s\": [", name);
  for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.4f", i == 0 ? "" : ", ", values[i]);
  std::printf("]");
}

int run(const std::string& model, int blocks, int count, bool to_none) {
  auto communicator = rondo::Communicator::from_environment();
  at::set_num_threads(1);
  torch::manual_seed(static_cast<std::uint64_t>(communicator.rank()));
  const bool convolutions = model == "conv";
  torch::nn::Sequential net = convolutions ? conv_net() : mlp();
  rondo::DistributedDataParallel wrapper(communicator, net);
  Steps steps(net, convolutions ? torch::randn({100, 3, 32, 32}) : torch::randn({32, 1024}), to_none);
  for (int i = 0; i < count; ++i) steps.milliseconds();
  std::vector<double> with, without;
  for (int block = 0; block < blocks; ++block) {
    communicator.barrier();
    for (int i = 0; i < count; ++i) with.push_back(steps.milliseconds());
    communicator.barrier();
    const auto paused = wrapper.no_sync();
    for (int i = 0; i < count; ++i) without.push_back(steps.milliseconds());
  }
  communicator.barrier();
  std::printf("{\"rank\": %d, \"torch\": \"%s\"", communicator.rank(), TORCH_VERSION);
  print("with", with);
  print("without", without);
  std::printf("}\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string model, gradients;
  int blocks = 0, steps = 0;
  CLI::App app("Times of training steps with and without communication.");
  app.add_option("MODEL", model)->required()->check(CLI::IsMember({"conv", "mlp"}));
  app.add_option("BLOCKS", blocks)->required()->check(CLI::Range(1, 1'000'000));
  app.add_option("STEPS", steps, "in a block")->required()->check(CLI::Range(1, 1'000'000));
  app.add_option("GRADIENTS", gradients, "between steps")->required()->check(CLI::IsMember({"none", "zeros"}));
  if (const auto code = rondo::parse(app, "rondo_step", argc, argv)) return *code;
  try {
    return run(model, blocks, steps, gradients == "none");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rondo_step: %s\n", error.what());
    return 1;
  }
}
