// SPDX-License-Identifier: Apache-2.0
// A training goes on from a file as if it had never stopped: this library's files and Python's, in both directions.
#include <functional>
#include <iterator>
#include <map>
#include <optional>

#include <rondo/trainer/gradients.hpp>

#include "tests/torch/checkpoints.hpp"

namespace {

using rondo::Communicator;
using rondo::DistributedDataParallel;
using rondo::test::file_bytes;
using rondo::test::Folder;
using rondo::test::Net;
using rondo::test::noise;
using rondo::test::nothing;
using rondo::test::torch_ranks;
using torch::Tensor;
namespace optim = torch::optim;

constexpr int kRanks = 2;

using Groups = std::vector<optim::OptimizerParamGroup>;
using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const Groups&)>;

template <class Optimizer, class Settings>
MakeOptimizer maker(Settings settings) {
  return [settings](const Groups& groups) { return std::make_unique<Optimizer>(groups, settings); };
}

// Nothing of the settings is Python's: they come from the file.
const std::map<std::string, MakeOptimizer>& optimizers() {
  static const std::map<std::string, MakeOptimizer> all = {
      {"sgd", maker<optim::SGD>(optim::SGDOptions(0.7))},
      {"nesterov", maker<optim::SGD>(optim::SGDOptions(0.7))},
      {"plain", maker<optim::SGD>(optim::SGDOptions(0.7).momentum(0.3))},
      {"adam", maker<optim::Adam>(optim::AdamOptions(0.7))},
      {"adamw", maker<optim::AdamW>(optim::AdamWOptions(0.7).amsgrad(true))},
      {"rmsprop", maker<optim::RMSprop>(optim::RMSpropOptions(0.7))},
      {"adagrad", maker<optim::Adagrad>(optim::AdagradOptions(0.7))}};
  return all;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& kind, Net& net) {
  std::vector<Tensor> rest = net->norm->parameters();
  for (const Tensor& p : net->last->parameters()) rest.push_back(p);
  return optimizers().at(kind)({net->first->parameters(), rest});
}

void step(Net& net, optim::Optimizer& optimizer, int batch) {
  net->zero_grad(true);
  torch::mse_loss(net->forward(noise({8, 6}, batch)), noise({8, 3}, 100 + batch)).backward();
  optimizer.step();
}

std::map<std::string, Tensor> state_of(const torch::nn::Module& module) {
  std::map<std::string, Tensor> all;
  for (const auto& item : module.named_parameters()) all[item.key()] = item.value().detach().clone();
  for (const auto& item : module.named_buffers()) all[item.key()] = item.value().clone();
  return all;
}
bool same(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  for (const auto& [name, tensor] : a) {
    if (b.count(name) == 0 || !torch::equal(tensor, b.at(name))) return false;
  }
  return a.size() == b.size();
}

std::string python_file(const std::string& name) { return RONDO_TORCH_DATA "/" + name + ".safetensors"; }

}  // namespace

TEST_CASE("libtorch: a training of Python's goes on as there, wrapped, and is saved with the same bytes") {
  for (const auto& [kind, unused] : optimizers()) {
    INFO(kind);
    const Folder folder;
    std::vector<std::map<std::string, Tensor>> ends(kRanks);
    std::vector<rondo::Extras> extras(kRanks);
    std::vector<std::size_t> steps(kRanks);
    std::vector<char> in_place(kRanks);
    CHECK(torch_ranks(kRanks, [&, kind = kind](Communicator& comm) {
            const auto rank = static_cast<std::size_t>(comm.rank());
            Net net;
            rondo::test::fill(*net, 50 + comm.rank());
            const auto optimizer = make_optimizer(kind, net);
            DistributedDataParallel model(comm, net);
            step(net, *optimizer, 77);  // it has a state of its own by now
            const void* const place = net->first->weight.data_ptr();
            extras[rank] = rondo::load(comm, python_file(kind), *model, *optimizer);
            in_place[rank] = net->first->weight.data_ptr() == place;
            rondo::save(comm, folder.file("net"), *model, *optimizer, extras[rank]);
            step(net, *optimizer, 3);
            ends[rank] = state_of(*model);
            steps[rank] = model.synchronizer().statistics().steps;
          }) == nothing(kRanks));
    CHECK((file_bytes(folder.file("net")) == file_bytes(python_file(kind))));
    CHECK(in_place == std::vector<char>(kRanks, 1));
    CHECK(steps == std::vector<std::size_t>(kRanks, 2));
    CHECK(same(ends[0], ends[1]));
    CHECK(extras[1].texts == std::map<std::string, std::string>{{"epoch", "3"}});
    REQUIRE(extras[1].tensors.size() == ends[1].size());
    for (const auto& [name, tensor] : ends[1]) {
      INFO(name);
      const Tensor& python = extras[1].tensors.at("after." + name);
      CHECK(python.scalar_type() == tensor.scalar_type());
      CHECK(python.sizes() == tensor.sizes());
      CHECK(torch::allclose(python.to(torch::kDouble), tensor.to(torch::kDouble), 1e-12, 1e-13));  // other kernels
    }
  }
}

TEST_CASE("libtorch: a training that was stopped ends with the bits of one that was not") {
  for (const auto& [kind, unused] : optimizers()) {
    INFO(kind);
    const Folder folder;
    std::vector<std::map<std::string, Tensor>> straight(kRanks), resumed(kRanks);
    CHECK(torch_ranks(kRanks, [&, kind = kind](Communicator& comm) {
            const auto rank = static_cast<std::size_t>(comm.rank());
            const auto batch = [&](int number) { return 10 * number + comm.rank(); };
            Net net;
            rondo::test::fill(*net, 9);
            const auto optimizer = make_optimizer(kind, net);
            DistributedDataParallel model(comm, net);
            for (auto& group : optimizer->param_groups()) group.options().set_lr(0.02);
            for (int i = 0; i < 3; ++i) step(net, *optimizer, batch(i));
            rondo::save(comm, folder.file("net"), *model, *optimizer);
            for (int i = 3; i < 6; ++i) step(net, *optimizer, batch(i));
            straight[rank] = state_of(*model);
          }) == nothing(kRanks));
    CHECK(torch_ranks(kRanks, [&, kind = kind](Communicator& comm) {
            Net net;
            const auto optimizer = make_optimizer(kind, net);
            DistributedDataParallel model(comm, net);
            rondo::load(comm, folder.file("net"), *model, *optimizer);
            for (int i = 3; i < 6; ++i) step(net, *optimizer, 10 * i + comm.rank());
            resumed[static_cast<std::size_t>(comm.rank())] = state_of(*model);
          }) == nothing(kRanks));
    for (std::size_t rank = 0; rank < kRanks; ++rank) CHECK(same(straight[rank], resumed[rank]));
  }
}

TEST_CASE("libtorch: tied tensors are kept once, as Python keeps them, and read under any of their names") {
  const Folder folder;
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          rondo::test::Tied net;
          rondo::load(comm, python_file("tied"), *net);
          if (!torch::equal(net->embed->weight, noise({5, 4}, 3, torch::kFloat))) throw std::runtime_error("values");
          rondo::save(comm, folder.file("net"), *net);
        }) == nothing(kRanks));
  CHECK((file_bytes(folder.file("net")) == file_bytes(python_file("tied"))));

  auto checkpoint = rondo::trainer::load(python_file("tied"));
  checkpoint.tensors["module.embed.weight"] = checkpoint.tensors.at("decode.weight");
  const auto load = [&](Communicator& comm) {
    rondo::trainer::save_once(comm, folder.file("net"), checkpoint);
    rondo::test::Tied net;
    return rondo::load(comm, folder.file("net"), *net).texts.size();
  };
  CHECK(torch_ranks(1, load) == nothing(1));
  checkpoint.tensors.erase("decode.weight");
  CHECK(torch_ranks(1, load) == nothing(1));
  checkpoint.tensors["decode.weight"] = checkpoint.tensors.at("module.embed.weight");
  checkpoint.tensors["decode.weight"].bytes[0] ^= std::byte{1};
  CHECK(rondo::test::contains(torch_ranks(1, load)[0], "is tied to 'embed.weight' here, but differs from it"));
}

TEST_CASE("libtorch: texts, a generator, a loss scale, and types that nobody sums come back on every rank") {
  const Folder folder;
  std::vector<int> right(kRanks);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          rondo::test::Odd net(comm.rank() == 0 ? 1 : 0);
          at::Generator generator = at::detail::createCPUGenerator(5);
          generator.set_current_seed(5);
          const Tensor generator_state = generator.get_state();
          const Tensor drawn = torch::rand({4}, generator);
          rondo::trainer::LossScaler scaler;
          scaler.restore(512, 3);
          rondo::save(
              comm, folder.file("net"), *net,
              {.texts = {{"note", "é\n"}},
               .tensors = {{"generator", generator_state},
                           {"scaler", torch::tensor({scaler.scale(), static_cast<double>(scaler.good_steps())})}}});
          const rondo::Extras extras = rondo::load(comm, folder.file("net"), *net);
          generator.set_state(extras.tensors.at("generator"));
          rondo::test::Odd rank_zeros(1);
          const bool whole = same(state_of(*net), state_of(*rank_zeros)) &&
                             torch::equal(torch::rand({4}, generator), drawn) && extras.texts.at("note") == "é\n" &&
                             extras.tensors.at("scaler")[0].item<double>() == 512;
          right[static_cast<std::size_t>(comm.rank())] = whole;
        }) == nothing(kRanks));
  CHECK(right == std::vector<int>{1, 1});
}

TEST_CASE("libtorch: Python's names of a wrapped model, and a file without the optimizer's part") {
  const Folder folder;
  auto checkpoint = rondo::trainer::load(python_file("adam"));
  decltype(checkpoint) wrapped;
  for (auto& [key, tensor] : checkpoint.tensors) {
    if (key.find("optimizer.") != 0 && key.find("extra.") != 0) wrapped.put("module." + key, tensor);
  }
  std::vector<std::string> said = torch_ranks(kRanks, [&](Communicator& comm) {
    rondo::trainer::save_once(comm, folder.file("net"), wrapped);
    Net net, other;
    rondo::load(comm, folder.file("net"), *net);
    rondo::load(comm, python_file("adam"), *other);  // the optimizer's part is not asked for
    if (!same(state_of(*net), state_of(*other))) throw std::runtime_error("values");
    rondo::load(comm, folder.file("net"), *net, *make_optimizer("adam", net));
  });
  for (const std::string& one : said)
    CHECK(rondo::test::contains(one, "the file has no optimizer's settings for 'first.weight'"));
}
