// SPDX-License-Identifier: Apache-2.0
// A graph that is the same in every step, also where backward passes run inside others: layers that forget their
// activations, and parameters that get a gradient several times in one step.
#include "tests/torch/models.hpp"

namespace {

using rondo::Communicator;
using rondo::DistributedDataParallel;
using rondo::test::expect;
using rondo::test::fill;
using rondo::test::noise;
using rondo::test::nothing;
using rondo::test::torch_ranks;
using rondo::test::TwoBranches;
using torch::Tensor;

constexpr int kRanks = 2;
using Body = std::function<Tensor(const Tensor&)>;

// y = body(x), whose activations are computed again in the backward pass, by a pass of its own.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Body* body) {
    context->save_for_backward({x});
    context->saved_data["body"] = reinterpret_cast<std::int64_t>(body);
    return (*body)(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto* const body = reinterpret_cast<const Body*>(context->saved_data["body"].toInt());
    Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    Tensor y;
    {
      const torch::AutoGradMode on(true);
      y = (*body)(x);
    }
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), Tensor()};
  }
};

// A layer that is used in several places, one inside another one's pass, and layers that are used once or never.
struct DeepImpl : torch::nn::Module {
  explicit DeepImpl(double seed, bool checkpointed) : forgets(checkpointed) {
    to(torch::kDouble);
    fill(*this, seed);
  }
  Tensor call(const Body& body, const Tensor& x) { return forgets ? Checkpointed::apply(x, &body) : body(x); }
  Tensor forward(const Tensor& x) {
    Tensor y = call(inner, call(outer, first(x)));
    return last(shared(y));
  }
  bool forgets;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 4));
  torch::nn::Linear shared = register_module("shared", torch::nn::Linear(4, 4));
  torch::nn::Linear once = register_module("once", torch::nn::Linear(4, 4));
  torch::nn::Linear never = register_module("never", torch::nn::Linear(4, 4));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(4, 2));
  Body inner = [this](const Tensor& x) { return torch::tanh(shared(x)); };
  Body outer = [this](const Tensor& x) { return once(call(inner, torch::tanh(x))); };
};
TORCH_MODULE(Deep);

Tensor batch(int rank, int number) { return noise({5, 6}, 100 + 10 * rank + number); }
Tensor loss_of(Deep& net, int rank, int number) { return net->forward(batch(rank, number)).pow(2).mean(); }

constexpr int kSteps = 4;
constexpr int kParts = 3;  // backward passes of a step

std::vector<Tensor> parameters_of(const Deep& net) {
  std::vector<Tensor> all;
  for (const Tensor& p : net->parameters()) all.push_back(p.detach().clone());
  return all;
}
void update(Deep& net) {
  const torch::NoGradGuard guard;
  for (Tensor& p : net->parameters()) {
    if (p.grad().defined()) p.sub_(0.02 * p.grad());
  }
}

// The same training on one process, which keeps its activations.
std::vector<Tensor> train_alone(int parts) {
  Deep net(0, false);
  for (int step = 0; step < kSteps; ++step) {
    net->zero_grad();
    for (int part = 0; part < parts; ++part) {
      for (int rank = 0; rank < kRanks; ++rank) (loss_of(net, rank, step * parts + part) / kRanks).backward();
    }
    update(net);
  }
  return parameters_of(net);
}

}  // namespace

TEST_CASE("libtorch: backward passes inside another one are one step where the graph is static") {
  const bool to_none = GENERATE(true, false);
  const int parts = GENERATE(1, kParts);
  std::vector<std::vector<Tensor>> nets(kRanks);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          Deep net(comm.rank(), true);
          DistributedDataParallel model(comm, net, {.bucket_bytes = 200, .static_graph = true});
          for (int step = 0; step < kSteps; ++step) {
            net->zero_grad(to_none);
            model.begin_forward(static_cast<std::uint64_t>(step));
            for (int part = 0; part + 1 < parts; ++part) {
              const auto paused = model.no_sync();
              loss_of(net, comm.rank(), step * parts + part).backward();
            }
            loss_of(net, comm.rank(), step * parts + parts - 1).backward();
            const auto& unused = model.synchronizer().unused_everywhere();
            expect(unused.size() == 2, "unused parameters: " + std::to_string(unused.size()));
            update(net);
          }
          expect(model.synchronizer().statistics().steps == kSteps, "passes inside others were steps");
          nets[static_cast<std::size_t>(comm.rank())] = parameters_of(net);
        }) == nothing(kRanks));
  const std::vector<Tensor> alone = train_alone(parts);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(torch::equal(nets[0][i], nets[1][i]));
    CHECK((nets[0][i] - alone[i]).abs().max().item<double>() < 1e-13);
  }
}

TEST_CASE("libtorch: a gradient is averaged while the backward pass runs once the static graph is known") {
  CHECK(torch_ranks(kRanks, [](Communicator& comm) {
          auto net = rondo::test::toy(0);
          DistributedDataParallel model(comm, net, {.first_bucket_bytes = 8, .bucket_bytes = 8, .static_graph = true});
          std::vector<std::size_t> ready;
          for (int step = 0; step < 3; ++step) {
            const Tensor x = batch(comm.rank(), step).requires_grad_();
            x.register_hook([&](const Tensor&) { ready.push_back(model.synchronizer().progress().ready); });
            rondo::test::loss_of(net, x).backward();
          }
          expect(ready.size() == 3 && ready[0] == 0 && ready[1] >= 2 && ready[2] >= 2, "ready before the end");
        }) == nothing(kRanks));
}

TEST_CASE("libtorch: a pass inside another one is refused by the parameter's name where the graph is not static") {
  for (const std::string& said : torch_ranks(1, [](Communicator& comm) {
         Deep net(0, true);
         const DistributedDataParallel model(comm, net);
         loss_of(net, 0, 0).backward();
       }))
    CHECK_THAT(said, Catch::Contains("'shared.") && Catch::Contains("got a second gradient in one step") &&
                         Catch::Contains("a static graph may"));
}

TEST_CASE("libtorch: a static graph that changes is told on all ranks, by the parameter's name") {
  for (const std::string& said : torch_ranks(kRanks, [](Communicator& comm) {
         TwoBranches net;
         const DistributedDataParallel model(comm, net, {.static_graph = true});
         const Tensor x = noise({3, 4}, 5);
         for (int step = 0; step < 3; ++step)
           torch::sum((step == 2 && comm.rank() == 1 ? net->right : net->left)(x)).backward();
       }))
    CHECK_THAT(said, Catch::Contains("the graph is static") && Catch::Contains("rank 1: 'left.weight' (now unused)") &&
                         Catch::Contains("'right.bias' (now used)"));
}

TEST_CASE("libtorch: a pass of a static graph that failed cannot become a part of the next one") {
  for (const std::string& said : torch_ranks(1, [](Communicator& comm) {
         Deep net(0, true);
         for (Tensor& p : net->last->parameters()) p.set_requires_grad(false);  // so that `shared` is the first
         const DistributedDataParallel model(comm, net, {.static_graph = true});
         loss_of(net, 0, 0).backward();
         const Body inner = net->inner;
         const Tensor loss = loss_of(net, 0, 1);
         net->inner = [](const Tensor&) -> Tensor { throw std::runtime_error("of the user"); };
         expect(rondo::test::contains(rondo::test::sentence_of(rondo::test::thrown_by([&] { loss.backward(); })),
                                      "of the user"),
                "no exception");
         net->inner = inner;
         loss_of(net, 0, 2).backward();
       }))
    CHECK_THAT(said, Catch::Contains("the backward pass before this one ended with an exception"));
}
