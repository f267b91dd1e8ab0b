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
