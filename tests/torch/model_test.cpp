// SPDX-License-Identifier: Apache-2.0
// What the wrapper says of the model to the trainer's other parts: options, all its tensors, the gradients of a step,
// the number of a batch.
#include <limits>

#include <rondo/trainer/checkpoint.hpp>
#include <rondo/trainer/drift.hpp>
#include <rondo/trainer/gradients.hpp>
#include <rondo/trainer/sharded_optimizer.hpp>

#include "tests/torch/models.hpp"

namespace {

using rondo::Communicator;
using rondo::DataParallelOptions;
using rondo::DistributedDataParallel;
using rondo::test::expect;
using rondo::test::fill;
using rondo::test::loss_of;
using rondo::test::noise;
using rondo::test::nothing;
using rondo::test::torch_ranks;
using rondo::test::TwoBranches;
using torch::Tensor;

constexpr int kRanks = 2;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor batch(int rank, int number = 0) { return noise({5, 6}, 100 + 10 * rank + number); }

struct StatefulImpl : torch::nn::Module {
  explicit StatefulImpl(int rank) {
    first = register_module("first", torch::nn::Linear(6, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    frozen = register_parameter("frozen", torch::full({2, 3}, rank + 1.0), false);
    tied = register_parameter("tied", first->bias);
    to(torch::kDouble);
    norm->num_batches_tracked.set_data(norm->num_batches_tracked.to(torch::kLong));
    mask = register_buffer("mask", torch::full({3}, rank == 0, torch::kBool));
    phase = register_buffer("phase", torch::complex(torch::full({2}, rank + 1.0), torch::full({2}, 2.0)));
    fill(*this, rank);
  }
  Tensor forward(const Tensor& x) { return norm(first(x)); }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Tensor frozen, tied, mask, phase;
};
TORCH_MODULE(Stateful);

Tensor step(Stateful& net, int rank, int number) {
  net->zero_grad();
  const Tensor loss = torch::sum(net->forward(batch(rank, number)).pow(3));
  loss.backward();
  return loss;
}

}  // namespace

TEST_CASE("libtorch: an option that is set to its default changes nothing") {
  const std::vector<DataParallelOptions> same = {
      {},
      {.first_bucket_bytes = std::size_t{1} << 20},
      {.bucket_bytes = std::size_t{25} << 20},
      {.broadcast_parameters = true},
      {.stream = nullptr},
      {.broadcast_buffers_each_step = true},
      {.hook = nullptr},
      {.static_graph = false},
      {.ignored = {}},
  };
  for (const DataParallelOptions& options : same) {
    std::vector<Tensor> means(kRanks);
    CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
            Stateful net(comm.rank());
            const DistributedDataParallel model(comm, net, options);
            for (int number = 0; number < 3; ++number) step(net, comm.rank(), number);
            means[comm.rank()] = net->norm->running_mean.clone();
          }) == nothing(kRanks));
    CHECK(torch::equal(means[0], means[1]));
    Stateful alone(0);
    for (int number = 0; number < 3; ++number) alone->forward(batch(0, number));
    CHECK(torch::equal(means[0], alone->norm->running_mean));
  }
}

TEST_CASE("libtorch: the state has every tensor once, by its name, and where it lies now") {
  CHECK(torch_ranks(1, [&](Communicator& comm) {
          Stateful net(0);
          const DistributedDataParallel model(comm, net);
          for (Tensor& t : net->parameters()) t.set_data(t.detach().clone());
          const auto state = model.state();
          std::vector<std::string> names;
          std::size_t bytes = 0;
          for (const auto& p : state) {
            names.push_back(p.name);
            bytes += p.count * size_of(p.dtype);
          }
          expect(names == std::vector<std::string>{"tied", "first.weight", "norm.weight", "norm.bias", "frozen", "mask",
                                                   "phase", "norm.running_mean", "norm.running_var",
                                                   "norm.num_batches_tracked"},
                 "names");
          expect(bytes == 8 * (4 + 24 + 4 + 4 + 6) + 3 + 2 * 8 + 8 * (4 + 4 + 1), "bytes");
          expect(state[1].values == net->first->weight.data_ptr(), "place");
          expect(state[9].shape == std::vector<std::size_t>{}, "a scalar's shape");
          expect(state[5].shape == std::vector<std::size_t>{3}, "the mask's shape");
          expect(state[6].shape == std::vector<std::size_t>{2, 8}, "the phase's shape");
        }) == nothing(1));
}

TEST_CASE("libtorch: a frozen parameter or a buffer that drifts is found, and a checkpoint brings it back") {
  for (const bool frozen : {true, false}) {
    const auto said = torch_ranks(kRanks, [&](Communicator& comm) {
      Stateful net(comm.rank());
      DistributedDataParallel model(comm, net);
      rondo::trainer::DriftCheck drift(comm, 1);
      step(net, comm.rank(), 0);
      drift.check(model.state());
      rondo::trainer::Checkpoint kept;
      kept.put(model.state());
      Tensor& tensor = frozen ? net->frozen : net->norm->running_var;
      {
        const torch::NoGradGuard guard;
        tensor.add_(comm.rank());
      }
      kept.get(model.state());
      drift.check(model.state());
      const torch::NoGradGuard guard;
      tensor.add_(comm.rank());
      drift.check(model.state());
    });
    for (const std::string& one : said)
      CHECK_THAT(one, Catch::Contains(frozen ? "'frozen' has other bits" : "'norm.running_var' has other bits"));
  }
}

TEST_CASE("libtorch: a parameter without a gradient in this step is neither clipped nor scaled") {
  const bool to_none = GENERATE(true, false);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          TwoBranches net;
          DistributedDataParallel model(comm, net);
          rondo::trainer::LossScaler scaler({.scale = 4});
          const Tensor x = noise({3, 4}, 5);
          (torch::sum(net->left(x)) * kInfinity + torch::sum(net->right(x))).backward();
          expect(!scaler.unscale(model.parameters()), "an infinity was not seen");
          expect(scaler.scale() == 2, "the scale after an infinity");
          for (int number = 0; number < 3; ++number) {
            net->zero_grad(to_none);
            (torch::sum(net->right(x)) * scaler.scale()).backward();
            expect(scaler.unscale(model.parameters()), "an infinity of a step before");
            const double norm = net->right->weight.grad().square().sum().item<double>() +
                                net->right->bias.grad().square().sum().item<double>();
            expect(std::abs(rondo::trainer::clip_gradients(model.parameters(), 1) - std::sqrt(norm)) < 1e-12, "norm");
          }
        }) == nothing(kRanks));
}

TEST_CASE("libtorch: clipping is torch's, also of gradients that the user has put in their place") {
  CHECK(torch_ranks(1, [&](Communicator& comm) {
          auto net = rondo::test::toy(1);
          DistributedDataParallel model(comm, net);
          loss_of(net, batch(0)).backward();
          auto twin = rondo::test::toy(1);
          loss_of(twin, batch(0)).backward();
          net->parameters()[0].mutable_grad() = net->parameters()[0].grad() * 3;
          twin->parameters()[0].mutable_grad() = twin->parameters()[0].grad() * 3;
          const double norm = rondo::trainer::clip_gradients(model.parameters(), 0.1);
          const double wanted = torch::nn::utils::clip_grad_norm_(twin->parameters(), 0.1);
          expect(std::abs(norm - wanted) < 1e-12, "norm");
          for (std::size_t i = 0; i < 4; ++i)
            expect(torch::allclose(net->parameters()[i].grad(), twin->parameters()[i].grad(), 1e-5), "gradients");
        }) == nothing(1));
}

TEST_CASE("libtorch: a sharded optimizer follows tensors, and leaves those without a gradient alone") {
  std::vector<std::vector<Tensor>> models(kRanks);
  const Tensor x = noise({3, 4}, 5);
  const auto train = [&](TwoBranches& net, auto&& optimize) {
    for (int number = 0; number < 4; ++number) {
      if (number == 2) {
        for (Tensor& p : net->parameters()) p.set_data(p.detach() * 2);
      }
      net->zero_grad(true);
      torch::sum((number % 2 == 0 ? net->left : net->right)(x)).backward();
      optimize();
    }
  };
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          TwoBranches net;
          fill(*net, 3);
          DistributedDataParallel model(comm, net);
          rondo::trainer::ShardedOptimizer optimizer(comm, model.parameters(), 0);
          const auto update = [](const rondo::trainer::Shard& shard) {
            for (std::size_t i = 0; i < shard.count; ++i)
              shard.value_span<double>()[i] -= 0.5 * shard.gradient_span<double>()[i] + 0.25;
          };
          expect(!rondo::test::sentence_of(rondo::test::thrown_by([&] { optimizer.step(update); })).empty(),
                 "no error");
          train(net, [&] { optimizer.step(update, model.parameters()); });
          for (const Tensor& p : net->parameters()) models[comm.rank()].push_back(p.detach().clone());
        }) == nothing(kRanks));
  TwoBranches alone;
  fill(*alone, 3);
  train(alone, [&] {
    const torch::NoGradGuard guard;
    for (Tensor& p : alone->parameters()) {
      if (p.grad().defined()) p.sub_(0.5 * p.grad() + 0.25);
    }
  });
  for (const auto& model : models) {
    for (std::size_t i = 0; i < model.size(); ++i) CHECK(torch::allclose(model[i], alone->parameters()[i], 1e-14));
  }
}

TEST_CASE("libtorch: a batch that one rank skips is told to all") {
  const auto said = torch_ranks(kRanks, [](Communicator& comm) {
    auto net = rondo::test::toy(0);
    DistributedDataParallel model(comm, net);
    for (int number = 0; number < 6; ++number) {
      if (number == 3 && comm.rank() == 1) continue;
      model.begin_forward(static_cast<std::uint64_t>(number));
      loss_of(net, batch(comm.rank(), number)).backward();
    }
  });
  for (const std::string& one : said)
    CHECK_THAT(one, Catch::Contains("gradients of different steps have met: step 3 of rank 0, step 4 of rank 1"));
}

TEST_CASE("libtorch: the moments of a step are the caller's") {
  CHECK(torch_ranks(1, [](Communicator& comm) {
          auto net = rondo::test::toy(0);
          DistributedDataParallel model(comm, net);
          const auto before = rondo::trainer::StepRecord::Clock::now();
          model.begin_forward();
          const Tensor loss = loss_of(net, batch(0));
          const auto between = rondo::trainer::StepRecord::Clock::now();
          model.begin_backward();
          loss.backward();
          const auto& record = model.synchronizer().last_step();
          expect(before <= record.forward && record.forward <= between && between <= record.backward, "moments");
        }) == nothing(1));
}
