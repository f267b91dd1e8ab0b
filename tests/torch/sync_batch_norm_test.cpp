// SPDX-License-Identifier: Apache-2.0
// SyncBatchNorm on several ranks is BatchNorm on the joined batch, to rounding.
#include <rondo/torch/sync_batch_norm.hpp>

#include "tests/torch/models.hpp"

namespace {

using rondo::Communicator;
using rondo::SyncBatchNorm;
using rondo::test::contains;
using rondo::test::fill;
using rondo::test::noise;
using rondo::test::nothing;
using rondo::test::torch_ranks;
using torch::Tensor;
using torch::nn::BatchNormOptions;

constexpr std::int64_t kFeatures = 3;

// What a layer gives in three steps: outputs, gradients of the input and the parameters, and the running moments.
struct Result {
  Tensor outputs, inputs, weight, bias, mean, variance, evaluated;
};

Tensor batch(std::int64_t count, int number, std::int64_t dims, torch::ScalarType type) {
  const std::vector<std::int64_t> shape{count, kFeatures, 4, 2};
  return (noise(torch::IntArrayRef(shape).slice(0, static_cast<std::size_t>(dims)), 3 + number) * 3 + 50).to(type);
}
std::shared_ptr<Communicator> split(Communicator& comm) {
  return std::make_shared<Communicator>(comm.split(0, comm.rank()));
}

// The elements [begin, end) of each batch of `count`.
template <class Layer>
Result run(Layer& layer, std::int64_t count, std::int64_t begin, std::int64_t end, std::int64_t dims,
           torch::ScalarType type) {
  layer->to(type);
  fill(*layer, 1);
  Result result;
  std::vector<Tensor> outputs, inputs;
  for (int number = 0; number < 3; ++number) {
    const Tensor x = batch(count, number, dims, type).slice(0, begin, end).clone().set_requires_grad(true);
    const Tensor y = layer->forward(x);
    const Tensor weights = torch::cos(batch(count, number + 9, dims, type)).slice(0, begin, end);
    torch::sum(y * weights + y.pow(3)).backward();
    outputs.push_back(y.detach());
    inputs.push_back(x.grad());
  }
  result.outputs = torch::stack(outputs, 1);
  result.inputs = torch::stack(inputs, 1);
  if (layer->weight.defined()) result.weight = layer->weight.grad(), result.bias = layer->bias.grad();
  result.mean = layer->running_mean, result.variance = layer->running_var;
  layer->eval();
  result.evaluated = layer->forward(batch(count, 5, dims, type).slice(0, begin, end)).detach();
  return result;
}
template <class Layer>
Result joined(const BatchNormOptions& options, std::int64_t count, std::int64_t dims, torch::ScalarType type) {
  Layer layer(options);
  return run(layer, count, 0, count, dims, type);
}

Tensor over(const std::vector<Result>& ranks, Tensor Result::*part) {
  std::vector<Tensor> parts;
  for (const Result& one : ranks) parts.push_back(one.*part);
  return torch::cat(parts);
}
bool close(const Tensor& a, const Tensor& b, double tolerance) {
  return a.sizes() == b.sizes() && torch::allclose(a, b, tolerance, tolerance);
}

// ends: of each rank's elements in the joined batch.
void compare(const BatchNormOptions& options, const std::vector<std::int64_t>& ends, std::int64_t dims,
             torch::ScalarType type, double tolerance) {
  const int world_size = static_cast<int>(ends.size());
  const std::int64_t count = ends.back();
  std::vector<Result> ranks(ends.size());
  REQUIRE(torch_ranks(world_size, [&](Communicator& comm) {
            SyncBatchNorm layer(split(comm), options);
            const auto rank = static_cast<std::size_t>(comm.rank());
            ranks[rank] = run(layer, count, rank == 0 ? 0 : ends[rank - 1], ends[rank], dims, type);
          }) == nothing(world_size));
  const Result wanted = dims == 2   ? joined<torch::nn::BatchNorm1d>(options, count, dims, type)
                        : dims == 3 ? joined<torch::nn::BatchNorm1d>(options, count, dims, type)
                                    : joined<torch::nn::BatchNorm2d>(options, count, dims, type);
  for (const auto part : {&Result::outputs, &Result::inputs, &Result::evaluated})
    CHECK(close(over(ranks, part), wanted.*part, tolerance));
  if (wanted.weight.defined()) {
    Tensor weight = torch::zeros_like(wanted.weight), bias = torch::zeros_like(wanted.bias);
    for (const Result& one : ranks) weight += one.weight, bias += one.bias;
    CHECK(close(weight, wanted.weight, 10 * tolerance));
    CHECK(close(bias, wanted.bias, 10 * tolerance));
  }
  for (const Result& one : ranks) {
    CHECK(close(one.mean, wanted.mean, tolerance));
    CHECK(close(one.variance, wanted.variance, tolerance));
  }
}

}  // namespace

TEST_CASE("libtorch: SyncBatchNorm is BatchNorm on the joined batch") {
  for (const std::int64_t dims : {2, 3, 4}) {
    for (const std::vector<std::int64_t>& ends :
         {std::vector<std::int64_t>{6}, {5, 10}, {1, 2}, {1, 8}, {0, 4, 11}, {3, 7, 8, 12}}) {
      INFO(dims << " dimensions, " << ends.size() << " ranks, " << ends.front() << " of " << ends.back());
      compare(BatchNormOptions(kFeatures), ends, dims, torch::kDouble, 1e-11);
      compare(BatchNormOptions(kFeatures), ends, dims, torch::kFloat, 2e-4);
    }
  }
  compare(BatchNormOptions(kFeatures).affine(false).eps(0.1), {2, 5}, 2, torch::kDouble, 1e-11);
  compare(BatchNormOptions(kFeatures).momentum(torch::nullopt), {2, 5}, 3, torch::kDouble, 1e-11);
}

TEST_CASE("libtorch: a wrapped module with SyncBatchNorm trains as one process with BatchNorm") {
  constexpr int kRanks = 2, kSteps = 5;
  const auto train = [](torch::nn::Sequential& net, int first, int ranks) {
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      std::vector<Tensor> parts;
      for (int rank = first; rank < first + ranks; ++rank) parts.push_back(noise({4, 6}, 20 + 7 * step + rank));
      rondo::test::loss_of(net, torch::cat(parts)).backward();
      optimizer.step();
    }
    return torch::nn::utils::parameters_to_vector(net->parameters()).detach();
  };
  const auto made = [](auto norm) {
    torch::nn::Sequential net(torch::nn::Linear(6, 8), norm, torch::nn::Tanh(), torch::nn::Linear(8, 3));
    net->to(torch::kDouble);
    fill(*net, 2);
    return net;
  };
  std::vector<Tensor> models(kRanks);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = made(SyncBatchNorm(split(comm), 8));
          const rondo::DistributedDataParallel model(comm, net);
          models[static_cast<std::size_t>(comm.rank())] = train(net, comm.rank(), 1);
        }) == nothing(kRanks));
  auto alone = made(torch::nn::BatchNorm1d(8));
  const Tensor wanted = train(alone, 0, kRanks);
  for (const Tensor& model : models) CHECK(torch::allclose(model, wanted, 1e-10, 1e-12));
}

TEST_CASE("libtorch: what SyncBatchNorm refuses") {
  const auto refused = [](auto body) { return torch_ranks(1, body)[0]; };
  CHECK(contains(refused([](Communicator&) { SyncBatchNorm(nullptr, 3); }), "pass a communicator that was made with"));
  CHECK(contains(torch_ranks(1, [](Communicator& comm) { SyncBatchNorm(split(comm), 3); },
                             {.device = rondo::Device::sim(), .timeout = rondo::test::kTorchDeadline})[0],
                 "pass a communicator that was made with Device::cpu()"));
  CHECK(contains(refused([](Communicator& comm) {
                   SyncBatchNorm(split(comm), 3)->forward(noise({2, 4}, 1));
                 }),
                 "an input of [2, 4] has not 3 features in dimension 1"));
  CHECK(contains(refused([](Communicator& comm) {
                   SyncBatchNorm(split(comm), 3)->forward(noise({1, 3}, 1));
                 }),
                 "more than one value of a feature on all ranks together"));
}
