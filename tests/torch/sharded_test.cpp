// SPDX-License-Identifier: Apache-2.0
// ZeRO stage 1 with libtorch's optimizers: the bits of the whole optimizer, and its files.
#include <map>

#include "tests/torch/checkpoints.hpp"

namespace {

using rondo::Communicator;
using rondo::DistributedDataParallel;
using rondo::ShardedOptimizer;
using rondo::test::contains;
using rondo::test::file_bytes;
using rondo::test::Folder;
using rondo::test::Net;
using rondo::test::noise;
using rondo::test::nothing;
using rondo::test::torch_ranks;
using torch::Tensor;
namespace optim = torch::optim;
using Values = std::vector<Tensor>;

// Of two groups, whose second has its own rate.
std::vector<optim::OptimizerParamGroup> groups_of(Net& net) {
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(net->first->parameters());
  Values rest = net->norm->parameters();
  for (const Tensor& p : net->last->parameters()) rest.push_back(p);
  groups.emplace_back(rest);
  return groups;
}

template <class Optimizer>
void train(Communicator& comm, DistributedDataParallel<rondo::test::NetImpl>& model, Optimizer& optimizer, int from,
           int to) {
  for (int i = from; i < to; ++i) {
    optimizer.zero_grad();
    const int batch = 10 * i + comm.rank();
    torch::mse_loss(model->forward(noise({8, 6}, batch)), noise({8, 3}, 100 + batch)).backward();
    optimizer.step();
  }
}

Values values_of(const Net& net) {
  Values all;
  for (const Tensor& p : net->parameters()) all.push_back(p.detach().clone());
  return all;
}
bool same(const Values& a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!torch::equal(a[i], b.at(i))) return false;
  }
  return a.size() == b.size();
}

// Six steps with the whole optimizer; six with a sharded one, which is saved after three and goes on in another object.
template <class Optimizer, class Settings>
void check(const Settings& settings) {
  constexpr int kRanks = 3;
  const Folder folder;
  std::vector<Values> whole(kRanks), sharded(kRanks), resumed(kRanks);
  std::vector<std::size_t> states(kRanks);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          const auto rank = static_cast<std::size_t>(comm.rank());
          Net net;
          rondo::test::fill(*net, 9);
          net->mask.fill_(true);
          DistributedDataParallel model(comm, net);
          Optimizer optimizer(groups_of(net), settings);
          train(comm, model, optimizer, 0, 3);
          rondo::save(comm, folder.file("whole"), *model, optimizer, {.texts = {{"step", "3"}}});
          train(comm, model, optimizer, 3, 6);
          whole[rank] = values_of(net);
        }) == nothing(kRanks));
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          const auto rank = static_cast<std::size_t>(comm.rank());
          Net net;
          rondo::test::fill(*net, 9);
          net->mask.fill_(true);
          DistributedDataParallel model(comm, net);
          ShardedOptimizer<Optimizer> optimizer(comm, groups_of(net), settings);
          train(comm, model, optimizer, 0, 3);
          states[rank] = optimizer.local().state().size();
          rondo::save(comm, folder.file("sharded"), *model, optimizer, {.texts = {{"step", "3"}}});
          train(comm, model, optimizer, 3, 6);
          sharded[rank] = values_of(net);
          ShardedOptimizer<Optimizer> other(comm, groups_of(net), Settings(0.7));
          const auto extras = rondo::load(comm, folder.file("whole"), *model, other);
          if (extras.texts.at("step") != "3") throw std::runtime_error("extras");
          train(comm, model, other, 3, 6);
          resumed[rank] = values_of(net);
        }) == nothing(kRanks));
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    CHECK(same(whole[0], sharded[rank]));
    CHECK(same(whole[0], resumed[rank]));
    CHECK(states[rank] < 4);  // of six parameters
  }
  CHECK((file_bytes(folder.file("whole")) == file_bytes(folder.file("sharded"))));
}

}  // namespace

TEST_CASE("libtorch: a sharded optimizer makes the same bits, with less state, and its file is the whole one's") {
  check<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9));
  check<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true));
  check<optim::AdamW>(optim::AdamWOptions(0.01));
  check<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
  check<optim::Adagrad>(optim::AdagradOptions(0.05));
}

TEST_CASE("libtorch: a sharded optimizer's file is read by a world of another size, whose shares are others") {
  const Folder folder;
  CHECK(torch_ranks(3, [&](Communicator& comm) {
          Net net;
          rondo::test::fill(*net, 9);
          DistributedDataParallel model(comm, net);
          ShardedOptimizer<optim::Adam> optimizer(comm, net->parameters(), optim::AdamOptions(0.01));
          train(comm, model, optimizer, 0, 2);
          rondo::save(comm, folder.file("three"), *model, optimizer);
        }) == nothing(3));
  for (const int world_size : {1, 2, 8}) {  // of eight ranks one has nothing
    CHECK(torch_ranks(world_size, [&](Communicator& comm) {
            Net net;
            ShardedOptimizer<optim::Adam> optimizer(comm, net->parameters(), optim::AdamOptions(0.5));
            rondo::load(comm, folder.file("three"), *net, optimizer);
            if (optimizer.local().param_groups()[0].options().get_lr() != 0.01) throw std::runtime_error("lr");
            rondo::save(comm, folder.file("again"), *net, optimizer);
          }) == nothing(world_size));
    CHECK((file_bytes(folder.file("again")) == file_bytes(folder.file("three"))));
  }
}

TEST_CASE("libtorch: ranks that shard different parameters hear of it, and what cannot be sent is named") {
  for (const std::string& one : torch_ranks(2, [](Communicator& comm) {
         ShardedOptimizer<optim::SGD> optimizer(comm, torch::nn::Linear(2, 2 + comm.rank())->parameters(),
                                                optim::SGDOptions(0.1));
       }))
    CHECK(contains(one, "ShardedOptimizer: ranks 0 and 1 have other parameters"));
  for (const std::string& one : torch_ranks(2, [](Communicator& comm) {
         const Tensor square = torch::arange(4.0).reshape({2, 2});
         std::vector<Tensor> parameters = {comm.rank() == 1 ? square.t() : square};  // on one rank alone
         ShardedOptimizer<optim::SGD> optimizer(comm, parameters, optim::SGDOptions(0.1));
       }))
    CHECK(contains(one, "'parameter 0' is not contiguous"));
}

TEST_CASE("libtorch: tensors go between ranks as values") {
  using Batch = std::map<std::string, std::vector<Tensor>>;
  const auto batch = [](int rank) {
    return Batch{{"x", {noise({2, rank}, rank), torch::tensor(rank), Tensor()}},
                 {"mask", {torch::full({rank, 1}, true, torch::kBool), noise({3, 2}, 1, torch::kHalf).t()}}};
  };
  const auto equal = [](const Batch& a, const Batch& b) {
    for (const auto& [name, tensors] : a) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor &x = tensors[i], &y = b.at(name).at(i);
        if (x.defined() != y.defined()) return false;
        if (x.defined() && (x.scalar_type() != y.scalar_type() || !torch::equal(x, y))) return false;
      }
    }
    return a.size() == b.size();
  };
  CHECK(torch_ranks(2, [&](Communicator& comm) {
          const int rank = comm.rank();
          if (!equal(rondo::trainer::broadcast_value(comm, batch(rank + 1), 1), batch(2)))
            throw std::runtime_error("b");
          const auto dealt = rank == 0 ? std::vector<Batch>{batch(3), batch(4)} : std::vector<Batch>{};
          if (!equal(rondo::trainer::scatter_value(comm, dealt, 0), batch(3 + rank))) throw std::runtime_error("s");
          if (rank == 0) rondo::trainer::send_value(comm, noise({5}, 2).set_requires_grad(true), 1);
          if (rank == 1 && !torch::equal(rondo::trainer::recv_value<Tensor>(comm, 0), noise({5}, 2)))
            throw std::runtime_error("r");
        }) == nothing(2));
}
