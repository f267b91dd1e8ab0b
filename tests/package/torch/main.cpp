// SPDX-License-Identifier: Apache-2.0
// A wrapped module of libtorch, one step: its gradient is the sum of the inputs.
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <rondo/rondo.hpp>
#include <rondo/torch.hpp>

int main() {
  auto ranks = rondo::Communicator::local(1);
  torch::nn::Linear layer(2, 1);
  rondo::DistributedDataParallel model(ranks.front(), layer);
  model->forward(torch::ones({3, 2})).sum().backward();
  const bool right = layer->weight.grad().equal(torch::full({1, 2}, 3.0F));
  std::printf("the gradient is %s\n", right ? "right" : "wrong");
  return right ? 0 : 1;
}
