// SPDX-License-Identifier: Apache-2.0
// A wrapped module behaves as the module: whatever libtorch allows between two steps gives the right averages. Catch2's
// assertions are for one thread, so ranks collect what is checked afterwards.
#include "tests/torch/models.hpp"

namespace {

using rondo::Communicator;
using rondo::DistributedDataParallel;
using rondo::test::fill;
using rondo::test::loss_of;
using rondo::test::noise;
using rondo::test::nothing;
using rondo::test::torch_ranks;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

constexpr int kRanks = 2;

Tensors copies(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& t : tensors) all.push_back(t.defined() ? t.detach().clone() : Tensor());
  return all;
}
Tensors gradients(const torch::nn::Module& module) {
  Tensors all;
  for (const Tensor& p : module.parameters()) all.push_back(p.grad());
  return copies(all);
}
Tensors average(const Tensors& a, const Tensors& b) {
  Tensors all;
  for (std::size_t i = 0; i < a.size(); ++i) all.push_back((a[i] + b[i]) / 2);
  return all;
}
// An average of two is the same bits in any order.
bool same(const Tensors& a, const Tensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !torch::equal(a[i], b[i]))) return false;
  }
  return a.size() == b.size();
}

Tensor batch(int rank, int number = 0) { return noise({5, 6}, 100 + 10 * rank + number); }
Tensors alone(int rank, int number = 0) {
  auto net = rondo::test::toy(0);
  loss_of(net, batch(rank, number)).backward();
  return gradients(*net);
}

struct Seen {  // by rank
  std::vector<Tensors> values = std::vector<Tensors>(kRanks);
  std::vector<int> notes = std::vector<int>(kRanks);
};

}  // namespace

TEST_CASE("libtorch: replicas start as rank 0's, and backward returns with averages") {
  Seen start, after;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = rondo::test::toy(comm.rank());
          DistributedDataParallel model(comm, net);
          start.values[comm.rank()] = copies(model->parameters());
          loss_of(net, batch(comm.rank())).backward();
          after.values[comm.rank()] = gradients(*model);
        }) == nothing(kRanks));
  for (int rank = 0; rank < kRanks; ++rank) {
    CHECK(same(start.values[rank], rondo::test::toy(0)->parameters()));
    CHECK(same(after.values[rank], average(alone(0), alone(1))));
  }
}

TEST_CASE("libtorch: gradients survive zero_grad in both ways, and the kept memory is not copied") {
  Seen seen;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = rondo::test::toy(0);
          DistributedDataParallel model(comm, net);
          const void* place = nullptr;
          for (const bool to_none : {true, false, false, true}) {
            model->zero_grad(to_none);
            bool wrong = to_none == net->parameters()[0].grad().defined();
            loss_of(net, batch(comm.rank())).backward();
            const void* const now = net->parameters()[0].grad().data_ptr();
            wrong = wrong || (place != nullptr && now != place) || !same(gradients(*net), average(alone(0), alone(1)));
            place = now;
            seen.notes[comm.rank()] += wrong;
          }
        }) == nothing(kRanks));
  CHECK(seen.notes == std::vector<int>{0, 0});
}

TEST_CASE("libtorch: gradients are handed over while the backward pass runs") {
  Seen seen;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = rondo::test::toy(0);
          DistributedDataParallel model(comm, net, {.first_bucket_bytes = 64, .bucket_bytes = 64});
          const Tensor hidden = net[0]->as<torch::nn::Linear>()->forward(batch(comm.rank()));
          hidden.register_hook(  // the first layer's own gradients come after it
              [&](const Tensor&) {
                seen.notes[comm.rank()] = static_cast<int>(model.synchronizer().progress().started);
              });
          torch::sum(net[2]->as<torch::nn::Linear>()->forward(torch::tanh(hidden))).backward();
        }) == nothing(kRanks));
  for (const int started : seen.notes) CHECK(started > 0);
}

TEST_CASE("libtorch: buffers follow rank 0, integers too, and also after other memory was given to them") {
  Seen seen;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          torch::nn::Sequential net(torch::nn::Linear(6, 4), torch::nn::BatchNorm1d(4));
          net->to(torch::kDouble);
          fill(*net, comm.rank());
          DistributedDataParallel model(comm, net);
          for (int step = 0; step < 3; ++step) {
            if (step == 1) {  // as torch::load does
              for (Tensor& t : model->buffers()) t.set_data(t.clone() + comm.rank());
              for (Tensor& t : model->parameters()) t.set_data(t.detach().clone());
            }
            torch::sum(model->forward(batch(comm.rank(), step)).pow(3)).backward();
          }
          seen.values[comm.rank()] = copies(model->buffers());
          seen.notes[comm.rank()] = model.parameters()[0].values == model->parameters()[0].data_ptr();
        }) == nothing(kRanks));
  CHECK(same(seen.values[0], seen.values[1]));
  CHECK(seen.notes == std::vector<int>{1, 1});

  torch::nn::Sequential expected(torch::nn::Linear(6, 4), torch::nn::BatchNorm1d(4));
  expected->to(torch::kDouble);
  fill(*expected, 0);
  for (int step = 0; step < 3; ++step) expected->forward(batch(0, step));
  CHECK(same(seen.values[0], copies(expected->buffers())));
}

namespace {

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("into", torch::zeros({6, 6}, torch::kDouble));
    register_parameter("out_of", weight);
    frozen = register_parameter("frozen", torch::zeros({6}, torch::kDouble), false);
  }
  Tensor forward(const Tensor& x) { return torch::tanh(x.mm(weight)).mm(weight.t()) + frozen; }
  Tensor weight, frozen;
};
TORCH_MODULE(Tied);

Tensors tied_alone(int rank) {
  Tied net;
  fill(*net, 0);
  torch::sum(net->forward(batch(rank)).pow(2)).backward();
  return {net->weight.grad()};
}

}  // namespace

TEST_CASE("libtorch: a shared parameter is averaged once, a frozen one made equal and left alone") {
  Seen weights, frozen;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          Tied net;
          fill(*net, comm.rank());
          DistributedDataParallel model(comm, net);
          weights.notes[comm.rank()] = static_cast<int>(model.parameters().size());
          torch::sum(model->forward(batch(comm.rank())).pow(2)).backward();
          weights.values[comm.rank()] = copies({net->weight.grad()});
          frozen.values[comm.rank()] = copies({net->frozen, net->frozen.grad()});
        }) == nothing(kRanks));
  Tied net;
  fill(*net, 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    CHECK(weights.notes[rank] == 1);
    CHECK(same(weights.values[rank], average(tied_alone(0), tied_alone(1))));
    CHECK(same(frozen.values[rank], {net->frozen.detach(), Tensor()}));
  }
}

TEST_CASE("libtorch: several forwards before one backward") {
  const auto both = [](torch::nn::Sequential& net, int rank) {
    const Tensor first = loss_of(net, batch(rank, 0)), second = loss_of(net, batch(rank, 1));
    (first + second).backward();
  };
  Seen seen;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = rondo::test::toy(0);
          DistributedDataParallel model(comm, net);
          both(net, comm.rank());
          seen.values[comm.rank()] = gradients(*net);
        }) == nothing(kRanks));
  std::vector<Tensors> expected;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto net = rondo::test::toy(0);
    both(net, rank);
    expected.push_back(gradients(*net));
  }
  for (const Tensors& got : seen.values) CHECK(same(got, average(expected[0], expected[1])));
}

TEST_CASE("libtorch: gradients add up under no_sync, and are sent once") {
  const bool to_none = GENERATE(true, false);
  Seen seen;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = rondo::test::toy(0);
          DistributedDataParallel model(comm, net);
          loss_of(net, batch(comm.rank(), 7)).backward();
          model->zero_grad(to_none);
          {
            const auto paused = model.no_sync();
            for (const int number : {0, 1}) loss_of(net, batch(comm.rank(), number)).backward();
          }
          loss_of(net, batch(comm.rank(), 2)).backward();
          seen.values[comm.rank()] = gradients(*net);
          seen.notes[comm.rank()] = static_cast<int>(model.synchronizer().statistics().steps);
        }) == nothing(kRanks));
  std::vector<Tensors> expected;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto net = rondo::test::toy(0);
    for (const int number : {0, 1, 2}) loss_of(net, batch(rank, number)).backward();
    expected.push_back(gradients(*net));
  }
  for (const Tensors& got : seen.values) CHECK(same(got, average(expected[0], expected[1])));
  CHECK(seen.notes == std::vector<int>{2, 2});
}

TEST_CASE("libtorch: what was used under no_sync alone is sent, what zero_grad took back is not") {
  const bool taken_back = GENERATE(false, true);
  Seen seen;
  const Tensor x = noise({3, 4}, 5);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          rondo::test::TwoBranches net;
          DistributedDataParallel model(comm, net);
          torch::sum(net->left(x) + net->right(x)).backward();  // so that nothing is zero by chance
          model->zero_grad(true);
          {
            const auto paused = model.no_sync();
            if (comm.rank() == 0) torch::sum(net->left(x)).backward();
          }
          if (taken_back) model->zero_grad(true);
          torch::sum(net->right(x)).backward();
          seen.values[comm.rank()] = copies({net->left->bias.grad(), net->right->bias.grad()});
        }) == nothing(kRanks));
  const Tensor left = torch::full({1}, taken_back ? 0.0 : 1.5, torch::kDouble);
  for (const Tensors& got : seen.values) CHECK(same(got, {left, torch::full({1}, 3.0, torch::kDouble)}));
}

TEST_CASE("libtorch: unused on some ranks counts as zeros there, unused on all stays without a gradient") {
  Seen seen;
  const Tensor x = noise({3, 4}, 5);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          rondo::test::TwoBranches net;
          DistributedDataParallel model(comm, net);
          for (int step = 0; step < 3; ++step) {
            model->zero_grad(true);
            torch::sum((comm.rank() == step % 2 ? net->left : net->right)(x)).backward();
            const Tensors got = {net->left->bias.grad(), net->right->bias.grad(), net->nobody->bias.grad()};
            const Tensor half = torch::full({1}, 1.5, torch::kDouble);
            seen.notes[comm.rank()] += same(got, {half, half, Tensor()});
          }
        }) == nothing(kRanks));
  CHECK(seen.notes == std::vector<int>{3, 3});
}

TEST_CASE("libtorch: a rank whose batches end sooner joins the others' steps") {
  Seen seen;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = rondo::test::toy(0);
          DistributedDataParallel model(comm, net);
          torch::optim::SGD optimizer(net->parameters(), 0.1);
          for (int step = 0; step < 2 + 3 * comm.rank(); ++step) {
            model->zero_grad(true);
            loss_of(net, batch(comm.rank(), step)).backward();
            optimizer.step();
          }
          for (model->zero_grad(true); model.join_step(); model->zero_grad(true)) optimizer.step();
          seen.values[comm.rank()] = copies(net->parameters());
          seen.notes[comm.rank()] = static_cast<int>(model.synchronizer().statistics().steps);
        }) == nothing(kRanks));
  CHECK(same(seen.values[0], seen.values[1]));
  CHECK(seen.notes == std::vector<int>{5, 5});
}

TEST_CASE("libtorch: a module outlives its wrapper, with its gradients, and trains on alone") {
  Seen kept, later;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          const int rank = comm.rank();
          auto net = rondo::test::toy(0);
          Tensor loss;
          {
            DistributedDataParallel model(comm, net);
            loss_of(net, batch(rank)).backward();
            loss = loss_of(net, batch(rank, 1));  // its graph knows the hooks
          }
          comm = {};
          kept.values[rank] = gradients(*net);
          net->zero_grad(true);
          loss.backward();
          later.values[rank] = gradients(*net);
        }) == nothing(kRanks));
  for (int rank = 0; rank < kRanks; ++rank) {
    CHECK(same(kept.values[rank], average(alone(0), alone(1))));
    CHECK(same(later.values[rank], alone(rank, 1)));
  }
}
