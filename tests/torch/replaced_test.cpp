// SPDX-License-Identifier: Apache-2.0
// Whatever becomes of a wrapped module's tensors between two steps, as a table: the next gradients are averages, or an
// error says in the same step why they are not. The module is used directly, so that nothing passes by the wrapper.
#include <filesystem>
#include <sstream>

#include "tests/torch/models.hpp"

namespace {

using rondo::Communicator;
using rondo::DistributedDataParallel;
using rondo::test::contains;
using rondo::test::fill;
using rondo::test::noise;
using rondo::test::nothing;
using rondo::test::torch_ranks;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

constexpr int kRanks = 2;

struct TableImpl : torch::nn::Module {
  TableImpl() { values = register_buffer("values", torch::zeros({4}, torch::kDouble)); }
  Tensor values;
};
TORCH_MODULE(Table);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(6, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    second = register_module("second", torch::nn::Linear(8, 3));
    gain = register_parameter("gain", torch::ones({1}), false);
    table = register_module("table", Table());
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& x) { return second(torch::tanh(norm(first(x)))) * gain + table->values.sum(); }
  void put_parameter(const std::string& name, const Tensor& t) { parameters_[name] = t; }

  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Table table{nullptr};
  Tensor gain;
};
TORCH_MODULE(Net);

Net made(double seed) {
  Net net;
  fill(*net, seed);
  return net;
}
Tensor loss_of(Net& net, int rank, int number) {
  const Tensor x = noise({5, 6}, 100 + 10 * rank + number, net->first->weight.scalar_type());
  return torch::sum(net->forward(x).pow(2));
}
Tensors gradients(const Net& net) {
  Tensors all;
  for (const Tensor& p : net->parameters()) all.push_back(p.grad().defined() ? p.grad().detach().clone() : Tensor());
  return all;
}
bool same(const Tensors& a, const Tensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !torch::equal(a[i], b[i]))) return false;
  }
  return a.size() == b.size();
}

std::string saved(Net net) {
  std::ostringstream stream;
  torch::save(net, stream);
  return stream.str();
}
template <class Module>
void load(Module& module, const std::string& bytes) {
  std::istringstream stream(bytes);
  torch::load(module, stream);
}
torch::nn::Linear second_of(double seed) { return made(seed)->second; }

struct Change {
  const char* name;
  void (*make)(Net& net);
  const char* error;  // a part of it; null: averages
};

void clone_all(Net& net) {
  for (Tensor& p : net->parameters()) p.set_data(p.detach().clone());
  for (Tensor& b : net->buffers()) b.set_data(b.clone());
}
void to_one_memory(Net& net) {
  std::vector<Tensor> parts;
  for (const Tensor& p : net->parameters()) parts.push_back(p.detach().reshape(-1));
  const Tensor all = torch::cat(parts);
  std::int64_t at = 0;
  for (Tensor& p : net->parameters()) {
    p.set_data(all.narrow(0, at, p.numel()).view(p.sizes()));
    at += p.numel();
  }
}
void move_gradients(Net& net) {
  for (Tensor& p : net->parameters()) {
    if (p.grad().defined()) p.mutable_grad().set_data(p.grad().clone());
  }
}
void own_gradients(Net& net) {
  for (Tensor& p : net->parameters()) {
    if (p.grad().defined()) p.mutable_grad() = p.grad().clone();
  }
}
void need_gradients(const torch::nn::Module& module, bool need) {
  for (Tensor& p : module.parameters()) p.set_requires_grad(need);
}

const Change kChanges[] = {
    {"none", [](Net&) {}, nullptr},
    {"torch::load", [](Net& net) { load(net, saved(made(5))); }, nullptr},
    {"torch::load twice",
     [](Net& net) {
       load(net, saved(made(5)));
       load(net, saved(made(6)));
     },
     nullptr},
    {"torch::load of a submodule",
     [](Net& net) {
       std::ostringstream stream;
       torch::save(made(5)->second, stream);
       load(net->second, stream.str());
     },
     nullptr},
    {"torch::load through an archive",
     [](Net& net) {
       torch::serialize::OutputArchive out;
       made(5)->save(out);
       std::stringstream stream;
       out.save_to(stream);
       torch::serialize::InputArchive in;
       in.load_from(stream);
       net->load(in);
     },
     nullptr},
    {"set_",
     [](Net& net) {
       const torch::NoGradGuard guard;
       for (Tensor& p : net->parameters()) p.set_(p.detach().clone());
     },
     nullptr},
    {"set_data", clone_all, nullptr},
    {"one memory for all", to_one_memory, nullptr},
    {"copies in place", [](Net& net) { fill(*net, 9); }, nullptr},
    {"gradients of one's own", own_gradients, nullptr},
    {"gradients in other memory", move_gradients, nullptr},
    {"to the same type", [](Net& net) { net->to(torch::kDouble); }, nullptr},
    {"there and back",
     [](Net& net) {
       net->to(torch::kFloat);
       net->to(torch::kDouble);
     },
     nullptr},
    {"frozen", [](Net& net) { need_gradients(*net->first, false); }, nullptr},
    {"frozen and back",
     [](Net& net) {
       need_gradients(*net->first, false);
       need_gradients(*net->first, true);
     },
     nullptr},
    {"another hook first", [](Net& net) { net->first->weight.register_hook([](const Tensor& g) { return g * 2; }); },
     nullptr},
    {"another type", [](Net& net) { net->to(torch::kFloat); },
     "'first.weight' was Double on cpu when the module was wrapped and is Float on cpu now"},
    {"another type of one tensor", [](Net& net) { net->table->values.set_data(net->table->values.to(torch::kFloat)); },
     "'table.values' was Double on cpu when the module was wrapped and is Float on cpu now"},
    {"another shape",
     [](Net& net) {
       torch::nn::Linear other(8, 4);
       other->to(torch::kDouble);
       std::ostringstream stream;
       torch::save(other, stream);
       load(net->second, stream.str());
     },
     "'second.weight' was [3, 8] when the module was wrapped and is [4, 8] now"},
    {"another shape of a buffer", [](Net& net) { net->table->values.resize_({6}).zero_(); },
     "'table.values' was [4] when the module was wrapped and is [6] now"},
    {"other strides", [](Net& net) { net->second->weight.set_data(net->second->weight.detach().t().contiguous().t()); },
     "'second.weight' was contiguous when the module was wrapped and is not now"},
    {"replace_module", [](Net& net) { net->second = net->replace_module("second", second_of(5)); },
     "parameter 'second.weight' was added, or began to need a gradient, after"},
    {"a new parameter", [](Net& net) { net->register_parameter("late", noise({3}, 1)); },
     "parameter 'late' was added, or began to need a gradient, after"},
    {"a new frozen parameter", [](Net& net) { net->register_parameter("late", noise({3}, 1), false); },
     "parameter 'late' was added, or began to need a gradient, after"},
    {"a parameter in the place of another",
     [](Net& net) {
       net->gain = torch::ones({1}, torch::kDouble).set_requires_grad(true);
       net->put_parameter("gain", net->gain);
     },
     "parameter 'gain' was added, or began to need a gradient, after"},
    {"replace_module with buffers alone", [](Net& net) { net->table = net->replace_module("table", Table()); },
     "buffer 'table.values' was added, or began to need a gradient, after"},
    {"unfrozen", [](Net& net) { net->gain.set_requires_grad(true); },
     "parameter 'gain' was added, or began to need a gradient, after"},
    {"unfrozen, and all others frozen",
     [](Net& net) {
       need_gradients(*net, false);
       net->gain.set_requires_grad(true);
     },
     "parameter 'gain' was added, or began to need a gradient, after"},
};

// One step, the change, and the gradients of another step.
Tensors steps(Net& net, int rank, const Change& change, bool to_none) {
  loss_of(net, rank, 0).backward();
  net->zero_grad(to_none);
  change.make(net);
  loss_of(net, rank, 1).backward();
  return gradients(net);
}

}  // namespace

TEST_CASE("libtorch: tensors that became others are averaged as before, or refused in the same step") {
  const bool to_none = GENERATE(true, false);
  for (const Change& change : kChanges) {
    INFO(change.name << (to_none ? ", gradients undefined" : ", gradients zero"));
    std::vector<Tensors> seen(kRanks), buffers(kRanks);
    const auto said = torch_ranks(kRanks, [&](Communicator& comm) {
      Net net = made(comm.rank());
      const DistributedDataParallel model(comm, net);
      seen[comm.rank()] = steps(net, comm.rank(), change, to_none);
      for (const Tensor& b : net->buffers()) buffers[comm.rank()].push_back(b.clone());
    });
    if (change.error != nullptr) {
      for (const std::string& one : said) CHECK_THAT(one, Catch::Contains(change.error));
      continue;
    }
    CHECK(said == nothing(kRanks));
    std::vector<Tensors> alone;
    for (int rank = 0; rank < kRanks; ++rank) {
      Net net = made(0);
      alone.push_back(steps(net, rank, change, to_none));
    }
    Tensors expected;  // an average of two is the same bits in any order
    for (std::size_t i = 0; i < alone[0].size(); ++i)
      expected.push_back(alone[0][i].defined() ? (alone[0][i] + alone[1][i]) / 2 : Tensor());
    for (const Tensors& one : seen) CHECK(same(one, expected));
    CHECK(same(buffers[0], buffers[1]));
  }
}

TEST_CASE("libtorch: what was given to the module stays its memory") {
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          Net net = made(0);
          DistributedDataParallel model(comm, net);
          to_one_memory(net);
          clone_all(net);  // and buffers
          to_one_memory(net);
          std::vector<const void*> places;
          for (const Tensor& p : net->parameters()) places.push_back(p.data_ptr());
          for (const Tensor& b : net->buffers()) places.push_back(b.data_ptr());
          loss_of(net, comm.rank(), 0).backward();
          std::size_t at = 0;
          for (const Tensor& p : net->parameters())
            if (p.data_ptr() != places[at++]) throw std::runtime_error("a parameter was moved");
          for (const Tensor& b : net->buffers())
            if (b.data_ptr() != places[at++]) throw std::runtime_error("a buffer was moved");
        }) == nothing(kRanks));
}

TEST_CASE("libtorch: every tensor replaced, and the wrapper not asked before its next call") {
  const auto said = torch_ranks(kRanks, [&](Communicator& comm) {
    Net net = made(0);
    DistributedDataParallel model(comm, net);
    net->first = net->replace_module("first", made(1)->first);
    net->norm = net->replace_module("norm", made(1)->norm);
    net->second = net->replace_module("second", made(1)->second);
    loss_of(net, comm.rank(), 0).backward();
    if (comm.rank() == 0) model.synchronizer();
    if (comm.rank() == 1) model->forward(noise({5, 6}, 1));
  });
  for (const std::string& one : said) CHECK_THAT(one, Catch::Contains("'first.weight' was added"));
}

TEST_CASE("libtorch: rank 0 saves, all load into the wrapped module, and training goes on as on one process") {
  const bool wrapped = GENERATE(true, false);  // through model.module(), or through the module
  const auto path = std::filesystem::temp_directory_path() /
                    ("rondo-torch-checkpoint-" + std::to_string(::getpid()) + (wrapped ? "-wrapped" : ""));
  constexpr int kSteps = 5;
  const auto train = [](torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int first_rank, int ranks) {
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      std::vector<Tensor> parts;
      for (int r = first_rank; r < first_rank + ranks; ++r) parts.push_back(noise({4, 6}, 50 + 16 * step + r));
      rondo::test::loss_of(net, torch::cat(parts)).backward();
      optimizer.step();
    }
  };
  std::vector<Tensor> models(kRanks);
  CHECK(torch_ranks(kRanks, [&](Communicator& comm) {
          auto net = rondo::test::toy(comm.rank());
          DistributedDataParallel model(comm, net);
          torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
          if (comm.rank() == 0) torch::save(rondo::test::toy(7), path.string());
          comm.barrier();
          auto module = wrapped ? model.module() : net.ptr();
          torch::load(module, path.string());
          train(net, optimizer, comm.rank(), 1);
          if (model.synchronizer().statistics().steps != kSteps) throw std::runtime_error("not averaged");
          models[comm.rank()] = torch::nn::utils::parameters_to_vector(net->parameters()).detach();
        }) == nothing(kRanks));
  std::filesystem::remove(path);
  auto alone = rondo::test::toy(7);
  torch::optim::SGD optimizer(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  train(alone, optimizer, 0, kRanks);
  CHECK(torch::equal(models[0], models[1]));
  CHECK(torch::allclose(models[0], torch::nn::utils::parameters_to_vector(alone->parameters()), 1e-12, 1e-12));
}
