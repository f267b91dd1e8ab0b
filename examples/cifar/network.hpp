// SPDX-License-Identifier: Apache-2.0
// The ConvNet of the tutorials: conv 3-6-5, pool, conv 6-16-5, pool, 400-120-84-10.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace cifar {

struct ConvNetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 5)));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 16, 5)));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(torch::nn::LinearOptions(400, 120)));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(torch::nn::LinearOptions(120, 84)));
  torch::nn::Linear fc3 = register_module("fc3", torch::nn::Linear(torch::nn::LinearOptions(84, 10)));

  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return fc3(torch::relu(fc2(torch::relu(fc1(x.flatten(1))))));
  }
};
TORCH_MODULE(ConvNet);

}  // namespace cifar
