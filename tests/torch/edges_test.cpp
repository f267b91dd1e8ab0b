// SPDX-License-Identifier: Apache-2.0
// Modules and moments that are rare: tensors that nobody calculates with, gradients from before, wrappers that go
// early.
#include <optional>

#include "tests/torch/models.hpp"

namespace {

using rondo::Communicator;
using rondo::DistributedDataParallel;
using rondo::test::loss_of;
using rondo::test::noise;
using rondo::test::nothing;
using rondo::test::torch_ranks;
using rondo::test::toy;
using torch::Tensor;

constexpr int kRanks = 2;

Tensor batch(int rank) { return noise({5, 6}, 100 + rank); }

struct OddImpl : torch::nn::Module {
  explicit OddImpl(int rank) {
    weight = register_parameter("weight", torch::full({2}, rank + 1.0, torch::kDouble));
    empty = register_parameter("empty", torch::zeros({0, 3}, torch::kDouble));
    mask = register_buffer("mask", torch::full({3}, rank == 0, torch::kBool));
    phase = register_buffer("phase", torch::complex(torch::full({3}, rank + 1.0), torch::full({3}, rank + 2.0)));
    register_buffer("mask_again", mask);
    register_buffer("nothing", Tensor());
  }
  Tensor weight, empty, mask, phase;
};
TORCH_MODULE(Odd);

}  // namespace

TEST_CASE("libtorch: buffers of types that nobody sums, empty and undefined tensors") {
  std::vector<int> right(kRanks);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          Odd net(comm.rank());
          DistributedDataParallel model(comm, net);
          (torch::sum(net->weight * (comm.rank() + 1)) + torch::sum(net->empty)).backward();
          const Odd expected(0);
          right[comm.rank()] = torch::equal(net->mask, expected->mask) && torch::equal(net->phase, expected->phase) &&
                               torch::equal(net->weight, expected->weight) &&
                               torch::equal(net->weight.grad(), torch::full({2}, 1.5, torch::kDouble));
        }) == nothing(kRanks));
  CHECK(right == std::vector<int>{1, 1});
}

TEST_CASE("libtorch: gradients from before the wrapping are added to") {
  std::vector<Tensor> sums(kRanks);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = toy(0);
          loss_of(net, batch(comm.rank())).backward();
          DistributedDataParallel model(comm, net);
          loss_of(net, batch(comm.rank())).backward();
          sums[comm.rank()] = net->parameters()[0].grad().clone();
        }) == nothing(kRanks));
  auto net = toy(0);
  for (int rank = 0; rank < kRanks; ++rank) loss_of(net, batch(rank)).backward();
  for (const Tensor& sum : sums) CHECK(torch::allclose(sum, net->parameters()[0].grad(), 1e-14, 1e-14));
}

TEST_CASE("libtorch: a wrapper that goes in the middle of a step leaves no gradient behind") {
  auto net = toy(0);
  torch_ranks(1, [&](Communicator& comm) {
    const DistributedDataParallel model(comm, net);
    const Tensor hidden = net[0]->as<torch::nn::Linear>()->forward(batch(0));
    hidden.register_hook([](const Tensor&) { throw std::runtime_error("of the user"); });
    torch::sum(net[2]->as<torch::nn::Linear>()->forward(hidden)).backward();
  });
  for (const Tensor& p : net->parameters()) CHECK_FALSE(p.grad().defined());
}

TEST_CASE("libtorch: no_sync may outlive its wrapper") {
  CHECK(torch_ranks(1, [](Communicator& comm) {
          auto net = toy(0);
          auto model = std::make_optional<DistributedDataParallel<torch::nn::SequentialImpl>>(comm, net.ptr());
          const auto paused = model->no_sync();
          model.reset();
          loss_of(net, batch(0)).backward();
          if (!net->parameters()[0].grad().defined()) throw std::runtime_error("no gradient");
        }) == nothing(1));
}

TEST_CASE("libtorch: wrapped again when the first wrapper has gone, a frozen part trained from then on") {
  std::vector<Tensor> sums(kRanks);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = toy(0);
          const Tensor bias = net->parameters()[1];
          bias.set_requires_grad(false);
          auto model = std::make_optional<DistributedDataParallel<torch::nn::SequentialImpl>>(comm, net.ptr());
          loss_of(net, batch(comm.rank())).backward();
          model.reset();
          bias.set_requires_grad(true);
          model.emplace(comm, net.ptr());
          net->zero_grad();
          loss_of(net, batch(comm.rank())).backward();
          sums[comm.rank()] = bias.grad().clone();
        }) == nothing(kRanks));
  auto net = toy(0);
  for (int rank = 0; rank < kRanks; ++rank) (loss_of(net, batch(rank)) / kRanks).backward();
  for (const Tensor& sum : sums) CHECK(torch::allclose(sum, net->parameters()[1].grad(), 1e-14, 1e-14));
}

namespace {

struct NoGradient : torch::autograd::Function<NoGradient> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list) {
    return {Tensor()};
  }
};

}  // namespace

TEST_CASE("libtorch: an undefined gradient is none, and what was frozen behind the forward pass gets none") {
  const bool frozen = GENERATE(false, true);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          rondo::test::TwoBranches net;
          DistributedDataParallel model(comm, net);
          const Tensor x = noise({3, 4}, 5);
          const Tensor left = frozen ? net->left->bias : NoGradient::apply(net->left->bias);
          const Tensor loss = torch::sum(net->right(x)) + torch::sum(left);
          if (frozen) net->left->bias.set_requires_grad(false);
          loss.backward();
          if (net->left->bias.grad().defined()) throw std::runtime_error("a gradient from nowhere");
          if (net->right->bias.grad().item<double>() != 3) throw std::runtime_error("not the average");
        }) == nothing(kRanks));
}
