// SPDX-License-Identifier: Apache-2.0
// Training a module on several ranks is training it on one with the batches joined.
#include "tests/torch/models.hpp"

namespace {

using rondo::test::loss_of;
using rondo::test::noise;
using rondo::test::toy;
using torch::Tensor;

constexpr int kSteps = 200;
constexpr std::int64_t kBatch = 4;  // of a rank

Tensor samples(int step, int first_rank, int ranks, torch::ScalarType type) {
  std::vector<Tensor> parts;
  for (int r = first_rank; r < first_rank + ranks; ++r) parts.push_back(noise({kBatch, 6}, 50 + 16 * step + r, type));
  return torch::cat(parts);
}

void train(torch::nn::Sequential& net, int first_rank, int ranks, torch::ScalarType type, bool to_none) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.5));
  for (int step = 0; step < kSteps; ++step) {
    net->zero_grad(to_none);
    loss_of(net, samples(step, first_rank, ranks, type)).backward();
    optimizer.step();
  }
}

std::vector<Tensor> detached(const torch::nn::Sequential& net) {
  std::vector<Tensor> all;
  for (const Tensor& p : net->parameters()) all.push_back(p.detach().reshape(-1));
  return all;
}

void compare(bool over_tcp, int world_size, torch::ScalarType type, double tolerance) {
  INFO(world_size << " ranks" << (over_tcp ? " over TCP, " : ", ") << c10::toString(type));
  std::vector<Tensor> models(static_cast<std::size_t>(world_size));
  const auto rank = [&](rondo::Communicator& comm) {
    auto net = toy(comm.rank(), type);
    const rondo::DistributedDataParallel model(comm, net, {.first_bucket_bytes = 64, .bucket_bytes = 300});
    train(net, comm.rank(), 1, type, world_size % 2 == 0);
    models[static_cast<std::size_t>(comm.rank())] = torch::cat(detached(net));
  };
  REQUIRE((over_tcp ? rondo::test::torch_nodes(world_size, rank) : rondo::test::torch_ranks(world_size, rank)) ==
          rondo::test::nothing(world_size));

  auto expected = toy(0, type);
  train(expected, 0, world_size, type, true);
  const Tensor wanted = torch::cat(detached(expected)), start = torch::cat(detached(toy(0, type)));
  CHECK((models[0] - wanted).norm().item<double>() <= tolerance * wanted.norm().item<double>());
  CHECK((start - wanted).norm().item<double>() > 0.05 * wanted.norm().item<double>());
  for (const Tensor& model : models) CHECK(torch::equal(model, models[0]));
}

}  // namespace

TEST_CASE("libtorch: 200 steps of several ranks are those of one process on the joined batch") {
  const bool over_tcp = GENERATE(false, true);
  for (const int world_size : {1, 2, 3, 4}) {
    compare(over_tcp, world_size, torch::kDouble, 1e-12);
    compare(over_tcp, world_size, torch::kFloat, 1e-5);
  }
}
