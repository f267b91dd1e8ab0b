// SPDX-License-Identifier: Apache-2.0
// Parameters and buffers that the wrapper is told to ignore: each rank's own, but in checkpoints.
#include <rondo/trainer/checkpoint.hpp>
#include <rondo/trainer/drift.hpp>

#include "tests/torch/models.hpp"

namespace {

using rondo::Communicator;
using rondo::DataParallelOptions;
using rondo::DistributedDataParallel;
using rondo::test::expect;
using rondo::test::fill;
using rondo::test::noise;
using rondo::test::nothing;
using rondo::test::torch_ranks;
using torch::Tensor;

constexpr int kRanks = 2;

struct PartlyOwnImpl : torch::nn::Module {
  explicit PartlyOwnImpl(int rank) {
    shared = register_module("shared", torch::nn::Linear(4, 2));
    own = register_module("own", torch::nn::Linear(4, 2));
    seen = register_buffer("seen", torch::full({2}, rank + 1.0));
    count = register_buffer("count", torch::full({3}, rank + 1.0));
    frozen = register_parameter("frozen", torch::full({2}, rank + 1.0), false);
    to(torch::kDouble);
    fill(*this, rank);
  }
  Tensor forward(const Tensor& x) { return shared(x) + own(x); }
  torch::nn::Linear shared{nullptr}, own{nullptr};
  Tensor seen, count, frozen;
};
TORCH_MODULE(PartlyOwn);

const std::vector<std::string> kOwn = {"own.weight", "own.bias", "seen", "frozen"};

Tensor batch(int rank) { return noise({3, 4}, 10 + rank); }
void step(PartlyOwn& net, int rank) {
  net->zero_grad();
  torch::sum(net->forward(batch(rank)).pow(2)).backward();
}
std::vector<std::string> names(const std::vector<rondo::trainer::Parameter>& all) {
  std::vector<std::string> result;
  for (const auto& p : all) result.push_back(p.name);
  return result;
}
std::vector<std::string> refused(const std::function<DataParallelOptions(int rank)>& options) {
  return torch_ranks(kRanks, [&](Communicator& comm) {
    PartlyOwn net(comm.rank());
    const DistributedDataParallel model(comm, net, options(comm.rank()));
  });
}

}  // namespace

TEST_CASE("libtorch: what is ignored is neither made equal nor averaged, the rest is") {
  std::vector<PartlyOwn> nets;
  for (int rank = 0; rank < kRanks; ++rank) nets.emplace_back(rank);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          PartlyOwn& net = nets[static_cast<std::size_t>(comm.rank())];
          DistributedDataParallel model(comm, net, {.ignored = kOwn});
          for (int number = 0; number < 3; ++number) step(net, comm.rank());
          rondo::trainer::DriftCheck(comm, 1).check(model.kept_equal());
          expect(model.parameters().size() == 2, "what is trained");
        }) == nothing(kRanks));
  std::vector<PartlyOwn> alone;  // rank 0's shared part, each rank's own one
  for (int rank = 0; rank < kRanks; ++rank) {
    alone.emplace_back(rank);
    const torch::NoGradGuard guard;
    alone.back()->shared->weight.copy_(nets[0]->shared->weight);
    alone.back()->shared->bias.copy_(nets[0]->shared->bias);
    const torch::AutoGradMode on(true);
    step(alone.back(), rank);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const PartlyOwn &net = nets[static_cast<std::size_t>(rank)], &one = alone[static_cast<std::size_t>(rank)];
    CHECK(torch::equal(net->own->weight, PartlyOwn(rank)->own->weight));
    CHECK(torch::equal(net->shared->weight, PartlyOwn(0)->shared->weight));
    CHECK(torch::equal(net->seen, torch::full({2}, rank + 1.0, torch::kDouble)));
    CHECK(torch::equal(net->frozen, PartlyOwn(rank)->frozen));
    CHECK(torch::equal(net->count, torch::full({3}, 1.0, torch::kDouble)));
    CHECK(torch::allclose(net->own->weight.grad(), one->own->weight.grad(), 1e-14));
    CHECK(torch::allclose(net->shared->weight.grad(),
                          (alone[0]->shared->weight.grad() + alone[1]->shared->weight.grad()) / 2, 1e-14));
  }
  CHECK_FALSE(torch::equal(nets[0]->own->weight.grad(), nets[1]->own->weight.grad()));
}

TEST_CASE("libtorch: what is ignored is in the state, and may become anything") {
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          PartlyOwn net(comm.rank());
          DistributedDataParallel model(comm, net, {.ignored = kOwn});
          expect(names(model.kept_equal()) == std::vector<std::string>{"shared.weight", "shared.bias", "count"},
                 "kept equal");
          expect(names(model.state()) == std::vector<std::string>{"shared.weight", "shared.bias", "count", "frozen",
                                                                  "own.weight", "own.bias", "seen"},
                 "state");
          net->own = net->replace_module("own", torch::nn::Linear(4, 2));
          net->own->to(torch::kDouble);
          net->frozen.set_requires_grad(true);
          step(net, comm.rank());
          for (const auto& p : model.state())
            expect(p.name != "own.weight" || p.values == net->own->weight.data_ptr(), "place");
        }) == nothing(kRanks));
}

TEST_CASE("libtorch: an ignored name that is none, that is not every rank's or not all of a tensor's is refused") {
  for (const std::string& said : refused([](int) { return DataParallelOptions{.ignored = {"seen", "shared.wieght"}}; }))
    CHECK_THAT(said, Catch::Contains("'shared.wieght' is to be ignored, but no parameter or buffer has that name"));
  for (const std::string& said :
       refused([](int rank) { return DataParallelOptions{.ignored = {rank == 0 ? "own.bias" : "shared.bias"}}; }))
    CHECK_THAT(said, Catch::Contains("rank 0 has ignored 'own.bias', but rank 1 has ignored 'shared.bias'"));
  for (const std::string& said : refused([](int rank) {
         return DataParallelOptions{.ignored =
                                        rank == 0 ? std::vector<std::string>{"frozen"} : std::vector<std::string>()};
       }))
    CHECK_THAT(said, Catch::Contains("rank 0 has ignored 'frozen', but rank 1 has frozen 'frozen', Double on cpu 2"));
  const auto said = torch_ranks(1, [](Communicator& comm) {
    PartlyOwn net(0);
    net->register_parameter("tied", net->own->bias);
    const DistributedDataParallel model(comm, net, {.ignored = {"own.bias"}});
  });
  CHECK_THAT(said[0], Catch::Contains("'tied' is the same tensor as 'own.bias', which is to be ignored"));
}

TEST_CASE("libtorch: frozen tensors of other names are told apart, though nothing trains them") {
  for (const std::string& said : torch_ranks(kRanks, [](Communicator& comm) {
         PartlyOwn net(comm.rank());
         net->register_parameter(comm.rank() == 0 ? "x" : "y", torch::zeros({2}, torch::kDouble), false);
         const DistributedDataParallel model(comm, net);
       }))
    CHECK_THAT(said, Catch::Contains("rank 0 has frozen 'x', Double on cpu 2, but rank 1 has frozen 'y'"));
}
