// SPDX-License-Identifier: Apache-2.0
// What does not fit is said on every rank, and no rank changes anything.
#include "tests/torch/checkpoints.hpp"

namespace {

using rondo::Communicator;
using rondo::test::contains;
using rondo::test::Folder;
using rondo::test::Net;
using rondo::test::torch_ranks;
using torch::Tensor;
namespace optim = torch::optim;

constexpr int kRanks = 2;

void everybody_says(const std::vector<std::string>& said, const std::string& part) {
  for (const std::string& one : said) {
    INFO(one);
    CHECK(contains(one, part));
  }
}

// Written by a world of its own, changed, and read into a module and an optimizer like those that wrote it.
std::vector<std::string> load_changed(const std::function<void(rondo::trainer::Checkpoint&)>& change,
                                      const std::function<void(Net&, int rank)>& adapt = {}) {
  const Folder folder;
  return torch_ranks(kRanks, [&](Communicator& comm) {
    Net net;
    rondo::test::fill(*net, 1);
    optim::Adam optimizer(net->parameters(), optim::AdamOptions(0.1));
    torch::sum(net->forward(rondo::test::noise({4, 6}, 2))).backward();
    optimizer.step();
    rondo::save(comm, folder.file("net"), *net, optimizer);
    auto checkpoint = rondo::trainer::load(comm, folder.file("net"));
    change(checkpoint);
    rondo::trainer::save_once(comm, folder.file("net"), checkpoint);
    if (adapt) adapt(net, comm.rank());
    rondo::test::fill(*net, 7);
    const Tensor before = net->first->weight.detach().clone();
    const double rate = 0.3;
    optimizer.param_groups()[0].options().set_lr(rate);
    try {
      rondo::load(comm, folder.file("net"), *net, optimizer);
    } catch (const rondo::Error&) {
      if (!torch::equal(net->first->weight, before) || optimizer.param_groups()[0].options().get_lr() != rate)
        throw std::runtime_error("something was changed");
      throw;
    }
  });
}

}  // namespace

TEST_CASE("libtorch: a checkpoint that lacks something, has too much or is of another model changes nothing") {
  CHECK(load_changed([](auto&) {}) == rondo::test::nothing(kRanks));
  const auto without = [](const std::string& key) {
    return load_changed([&](auto& checkpoint) { REQUIRE(checkpoint.tensors.erase(key) == 1); });
  };
  everybody_says(without("norm.num_batches_tracked"), "the file has no tensor 'norm.num_batches_tracked'");
  everybody_says(without("optimizer.state.last.bias.exp_avg"), "no tensor 'optimizer.state.last.bias.exp_avg'");
  everybody_says(without("optimizer.param_groups.last.bias.eps"), "no tensor 'optimizer.param_groups.last.bias.eps'");
  everybody_says(without("optimizer.param_groups.last.bias.lr"), "no optimizer's settings for 'last.bias'");
  const auto with = [](const std::string& key, const rondo::trainer::StoredTensor& tensor) {
    return load_changed([&](auto& checkpoint) { checkpoint.tensors[key] = tensor; });
  };
  const std::vector<std::byte> eight(8);
  everybody_says(with("other", {"F64", {}, eight}), "the file has a tensor 'other', but the module has none");
  everybody_says(with("norm.num_batches_tracked", {"I64", {1}, eight}),
                 "'norm.num_batches_tracked' is I64 [1] in the file, but I64 [] here");
  everybody_says(with("scale", {"F32", {2}, eight}), "'scale' is F32 [2] in the file, but F64 [] here");
  everybody_says(with("optimizer.state.last.bias.momentum_buffer", {"F64", {}, eight}),
                 "'optimizer.state.last.bias.momentum_buffer', for which this optimizer has no place");
  everybody_says(with("optimizer.state.last.bias.exp_avg", {"F64", {}, eight}), "is F64 [] in the file, but F64 [3]");
  everybody_says(with("optimizer.param_groups.last.bias.lr", {"F64", {}, eight}),
                 "other settings for 'last.bias' than for the first parameter of its group");
  const rondo::trainer::StoredTensor on{"BOOL", {}, {std::byte{1}}}, off{"BOOL", {}, {std::byte{0}}};
  everybody_says(with("optimizer.param_groups.last.bias.maximize", on), "last.bias.maximize', for which this");
  everybody_says(with("optimizer.param_groups.last.bias.decoupled_weight_decay", on), "was trained by AdamW");
  CHECK(with("optimizer.param_groups.last.bias.maximize", off) == rondo::test::nothing(kRanks));
}

TEST_CASE("libtorch: one rank's module is another one: no rank changes, all say which") {
  const auto said = load_changed([](auto&) {},
                                 [](Net& net, int rank) {
                                   if (rank == 1) net->register_buffer("more", torch::zeros({2}));
                                 });
  CHECK(contains(said[0], "rank 1: checkpoint: the file has no tensor 'more'"));
  CHECK(contains(said[1], "checkpoint: the file has no tensor 'more'"));
}

TEST_CASE("libtorch: what cannot be saved is said on every rank, and no file comes of it") {
  const Folder folder;
  const auto saved = [&](const std::function<void(Communicator&, const std::string&)>& save) {
    const auto said = torch_ranks(kRanks, [&](Communicator& comm) { save(comm, folder.file("net")); });
    CHECK(!std::filesystem::exists(folder.file("net")));
    return said;
  };
  everybody_says(saved([](Communicator& comm, const std::string& path) {
                   Net net;
                   optim::LBFGS optimizer(net->parameters());
                   rondo::save(comm, path, *net, optimizer);
                 }),
                 "the state of torch::optim::LBFGS cannot be kept; SGD, Adam, AdamW, RMSprop and Adagrad can");
  everybody_says(saved([](Communicator& comm, const std::string& path) {
                   Net net, other;
                   optim::SGD optimizer(other->parameters(), 0.1);
                   rondo::save(comm, path, *net, optimizer);
                 }),
                 "the optimizer's parameter 0 of group 0 is none of the module");
  const auto of_buffer = [&](const std::string& name, const Tensor& tensor, rondo::Extras extras = {}) {
    return saved([&](Communicator& comm, const std::string& path) {
      torch::nn::Module module;
      module.register_buffer(name, tensor);
      rondo::save(comm, path, module, extras);
    });
  };
  everybody_says(of_buffer("wide", torch::zeros({2}, torch::kComplexDouble)),
                 "'wide' is ComplexDouble, which a safetensors file cannot hold");
  everybody_says(of_buffer("thin", torch::zeros({2, 2}).to_sparse()), "'thin' is Float and not dense, which a");
  everybody_says(of_buffer("w\xff", torch::zeros({2})), "'w\\ufffd' is not UTF-8");
  everybody_says(of_buffer("w", torch::zeros({2}), {.texts = {{"k", "\xff"}}}), "is not UTF-8");
  everybody_says(saved([](Communicator& comm, const std::string& path) {
                   torch::nn::Sequential module(torch::OrderedDict<std::string, torch::nn::AnyModule>(
                       {{"optimizer", torch::nn::AnyModule(torch::nn::Linear(2, 2))}}));
                   rondo::save(comm, path, *module);
                 }),
                 "the module's 'optimizer.weight' would lie among the tensors that begin with optimizer.");
  everybody_says(
      torch_ranks(kRanks, [&](Communicator& comm) { rondo::save(comm, "/nowhere/at/all", *torch::nn::Linear(2, 2)); }),
      "cannot make a file beside /nowhere/at/all: No such file");
  everybody_says(torch_ranks(kRanks,
                             [&](Communicator& comm) {
                               torch::nn::Linear net(2, 2);
                               rondo::load(comm, folder.file("net"), *net);
                             }),
                 "net: No such file");
}
