// SPDX-License-Identifier: Apache-2.0
// The same training as PyTorch's DistributedDataParallel over Gloo, beside/python_ddp.py: its results lie in
// beside/results.json. Where tools/torch-check let Python run on this machine too, with the libtorch of this build, the
// same bits are asked for; another processor or version may order a sum differently.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <rondo/trainer/local_sgd.hpp>
#include <rondo/trainer/power_sgd.hpp>
#include <rondo/trainer/wire.hpp>
#include <set>
#include <sstream>

#include "tests/torch/models.hpp"

namespace {

using rondo::Communicator;
using rondo::DistributedDataParallel;
using rondo::test::fill;
using rondo::test::noise;
using torch::Tensor;
using torch::nn::Linear;
using Json = nlohmann::json;
using Wrapper = DistributedDataParallel<torch::nn::Module>;

constexpr int kRanks = 2;
constexpr int kSteps = 6;

struct Model {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensor(int rank, int step)> loss;
};

struct Case {
  std::function<Model()> make;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)> optimizer{};  // none: SGD
  torch::ScalarType type = torch::kDouble;
  std::size_t bucket_bytes = 0;  // 0: the default
  int micro = 1;
  std::optional<double> clip{};
  bool to_none = true, reload = false, uneven = false;
  std::string frozen{};
  std::function<std::shared_ptr<rondo::trainer::BucketHook>()> hook{};
  std::optional<rondo::trainer::AveragerOptions> averager{};
  rondo::DataParallelOptions options{};
  std::optional<double> tolerance{};  // none: what rounding makes
  // False where libtorch's C++ and Python frontends compute the same formula in another order.
  bool same_bits = true;
};

Tensor batch(int rank, int step) { return noise({5, 6}, 100 + 10 * step + rank); }
Tensor goal(const Tensor& x) { return torch::tanh(x.narrow(1, 0, 3) * 2); }

template <class Net>
Model regression(Net net) {
  return {net.ptr(), [net](int rank, int step) mutable {
            const Tensor x = batch(rank, step).to(net->parameters()[0].scalar_type());
            return torch::mse_loss(net->forward(x), goal(x));
          }};
}
Model mlp() { return regression(torch::nn::Sequential(Linear(6, 8), torch::nn::Tanh(), Linear(8, 3))); }

struct BranchesImpl : torch::nn::Module {
  Tensor forward(const Tensor& x, bool to_left) { return (to_left ? left : right)->forward(x); }
  Linear left = register_module("left", Linear(6, 3));
  Linear right = register_module("right", Linear(6, 3));
  Linear nobody = register_module("nobody", Linear(6, 3));
};
TORCH_MODULE(Branches);
Model branches() {
  Branches net;
  return {net.ptr(), [net](int rank, int step) mutable {
            const Tensor x = batch(rank, step);
            return torch::mse_loss(net->forward(x, (rank + step) % 2 == 0), goal(x));
          }};
}

Model one_branch() {
  Branches net;
  return {net.ptr(), [net](int rank, int step) mutable {
            const Tensor x = batch(rank, step);
            return torch::mse_loss(net->forward(x, true), goal(x));
          }};
}

struct TiedImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return torch::tanh(x.mm(weight)).mm(weight.t()); }
  Tensor weight = register_parameter("weight", torch::zeros({6, 6}));
};
TORCH_MODULE(Tied);
Model tied() {
  Tied net;
  return {net.ptr(), [net](int rank, int step) mutable { return net->forward(batch(rank, step)).pow(2).mean(); }};
}

struct RecurrentImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return head->forward(std::get<0>(cells->forward(x.unsqueeze(1))).squeeze(1)); }
  torch::nn::LSTM cells = register_module("cells", torch::nn::LSTM(6, 4));
  Linear head = register_module("head", Linear(4, 3));
};
TORCH_MODULE(Recurrent);

struct WordsImpl : torch::nn::Module {
  Tensor forward(const Tensor& words) { return head->forward(table->forward(words)); }
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(10, 6));
  Linear head = register_module("head", Linear(6, 3));
};
TORCH_MODULE(Words);
Model words() {
  Words net;
  return {net.ptr(), [net](int rank, int step) mutable {
            return net->forward(torch::arange(5) * 3 % (7 + rank) + step % 2).pow(2).mean();
          }};
}

struct AttendingImpl : torch::nn::Module {
  Tensor forward(const Tensor& flat) {
    const Tensor x = flat.unsqueeze(1);
    return head->forward(norm->forward(x + std::get<0>(attention->forward(x, x, x)))).squeeze(1);
  }
  torch::nn::MultiheadAttention attention = register_module("attention", torch::nn::MultiheadAttention(6, 2));
  torch::nn::LayerNorm norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
  Linear head = register_module("head", Linear(6, 3));
};
TORCH_MODULE(Attending);

struct ScalarImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return head->forward(x) * scale; }
  Tensor scale = register_parameter("scale", torch::zeros({}));
  Linear head = register_module("head", Linear(6, 3));
};
TORCH_MODULE(Scalar);

Model convolutions() {
  using namespace torch::nn;
  Sequential net(Conv2d(Conv2dOptions(1, 2, 3).padding(1)), ReLU(), MaxPool2d(2), Flatten(), Linear(18, 3));
  return {net.ptr(), [net](int rank, int step) mutable {
            return torch::nn::functional::cross_entropy(net->forward(noise({4, 1, 6, 6}, 100 + 10 * step + rank)),
                                                        (torch::arange(4) + step) % 3);
          }};
}

template <class Optimizer, class Options>
auto with(Options options) {
  return
      [options](std::vector<Tensor> parameters) { return std::make_unique<Optimizer>(std::move(parameters), options); };
}

auto low_rank(rondo::trainer::PowerSgdOptions options) {
  options.start_step = 2;
  return [options] { return rondo::trainer::power_sgd(options); };
}

// The names and what they mean are python_ddp.py's.
std::map<std::string, Case> cases() {
  using namespace torch::optim;
  const auto heavy = with<SGD>(SGDOptions(0.05).momentum(0.9).weight_decay(0.01).nesterov(true));
  const auto norm = [] {
    return regression(torch::nn::Sequential(Linear(6, 4), torch::nn::BatchNorm1d(4), Linear(4, 3)));
  };
  const auto wire = [] { return rondo::trainer::compress_to(rondo::DataType::bf16); };
  const auto alone = [] { return rondo::trainer::post_local_sgd({.start_step = 2, .average_in_group = false}); };
  return {
      {"sgd", {.make = mlp}},
      {"momentum", {.make = mlp, .optimizer = heavy}},
      {"adam", {.make = mlp, .optimizer = with<Adam>(AdamOptions(0.01)), .same_bits = false}},
      {"adamw", {.make = mlp, .optimizer = with<AdamW>(AdamWOptions(0.01)), .same_bits = false}},
      {"f32", {.make = mlp, .type = torch::kFloat}},
      {"small buckets", {.make = mlp, .bucket_bytes = 104}},
      {"zeroed gradients", {.make = mlp, .to_none = false}},
      {"accumulation", {.make = mlp, .micro = 3}},
      {"clipping", {.make = mlp, .clip = 0.1, .same_bits = false}},
      {"reload", {.make = mlp, .optimizer = heavy, .reload = true}},
      {"unused", {.make = branches}},
      {"tied", {.make = tied}},
      {"frozen", {.make = mlp, .frozen = "0.weight"}},
      {"batch norm", {.make = norm}},
      {"convolutions", {.make = convolutions}},
      {"recurrent", {.make = [] { return regression(Recurrent()); }}},
      {"words", {.make = words}},
      {"attention", {.make = [] { return regression(Attending()); }, .same_bits = false}},
      {"scalar", {.make = [] { return regression(Scalar()); }}},
      {"16 bits on the wire", {.make = mlp, .type = torch::kFloat, .hook = wire, .tolerance = 1e-3}},
      {"uneven", {.make = mlp, .uneven = true}},
      {"ignored", {.make = mlp, .options = {.ignored = {"0.weight", "2.bias"}}}},
      {"static graph", {.make = one_branch, .options = {.static_graph = true}}},
      {"local steps",
       {.make = mlp, .hook = alone, .averager = rondo::trainer::AveragerOptions{.period = 2, .start_step = 2}}},
      {"rank 1", {.make = mlp, .hook = low_rank({.min_compression_rate = 1}), .same_bits = false}},
      {"rank 1, f32",
       {.make = mlp,
        .type = torch::kFloat,
        .hook = low_rank({.min_compression_rate = 1, .random_seed = 3}),
        .same_bits = false}},
      {"rank 1, epsilon",
       {.make = mlp,
        .hook = low_rank({.min_compression_rate = 1, .orthogonalization_epsilon = 1e-3}),
        .same_bits = false}},
      {"rank 2",
       {.make = convolutions,
        .hook = low_rank({.matrix_approximation_rank = 2, .min_compression_rate = 0.5}),
        .same_bits = false}},
      {"rank 2, cold",
       {.make = mlp,
        .hook = low_rank({.matrix_approximation_rank = 2, .min_compression_rate = 0.5, .warm_start = false}),
        .same_bits = false}},
      {"rank 3, no feedback",
       {.make = mlp,
        .hook = low_rank({.matrix_approximation_rank = 3, .min_compression_rate = 0.3, .use_error_feedback = false}),
        .same_bits = false}},
  };
}

// A checkpoint of another model's values, half of these and a quarter, as torch::load reads it.
void load_other_values(const Case& one, torch::nn::Module& module) {
  const Model other = one.make();
  other.module->to(one.type);
  const torch::NoGradGuard guard;
  const auto from = module.parameters(), into = other.module->parameters();
  for (std::size_t i = 0; i < into.size(); ++i) into[i].copy_(from[i] * 0.5 + 0.25);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  other.module->save(out);
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  module.load(in);
}

struct Outcome {
  std::vector<double> losses, state;
};

std::vector<double> state_of(const torch::nn::Module& module) {
  std::vector<Tensor> flat;
  for (const Tensor& p : module.parameters()) flat.push_back(p.detach().to(torch::kDouble).reshape(-1));
  for (const Tensor& b : module.buffers()) flat.push_back(b.to(torch::kDouble).reshape(-1));
  const Tensor all = torch::cat(flat);
  return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
}

void train(const Case& one, const Model& model, Wrapper& wrapper, Communicator& comm, std::vector<double>& losses) {
  const int rank = comm.rank();
  rondo::trainer::ModelAverager averager(comm, one.averager.value_or(rondo::trainer::AveragerOptions()));
  const auto parameters = model.module->parameters();
  const auto optimizer = one.optimizer
                             ? one.optimizer(parameters)
                             : std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.05));
  for (int step = 0; step < (one.uneven ? kSteps - 2 * rank : kSteps); ++step) {
    if (one.reload && step == kSteps / 2) load_other_values(one, *wrapper);
    model.module->zero_grad(one.to_none);
    for (int part = 0; part < one.micro - 1; ++part) {
      const auto paused = wrapper.no_sync();
      model.loss(rank, step * one.micro + part).backward();
    }
    const Tensor loss = model.loss(rank, step * one.micro + one.micro - 1);
    loss.backward();
    if (one.clip) torch::nn::utils::clip_grad_norm_(parameters, *one.clip);
    optimizer->step();
    if (one.averager) averager.after_step(wrapper.parameters());
    losses.push_back(loss.item<double>());
  }
  if (!one.uneven) return;
  model.module->zero_grad();
  while (wrapper.join_step()) {
    optimizer->step();
    model.module->zero_grad();
  }
}

std::vector<Outcome> run(const Case& one) {
  std::vector<Outcome> outcomes(kRanks);
  CHECK(rondo::test::torch_ranks(kRanks, [&](Communicator& comm) {
          const Model model = one.make();
          model.module->to(one.type);
          fill(*model.module, comm.rank());
          for (auto& item : model.module->named_parameters()) item.value().set_requires_grad(item.key() != one.frozen);
          rondo::DataParallelOptions options = one.options;
          if (one.bucket_bytes != 0) options.first_bucket_bytes = options.bucket_bytes = one.bucket_bytes;
          if (one.hook) options.hook = one.hook();
          Wrapper wrapper(comm, model.module, options);
          Outcome& outcome = outcomes[static_cast<std::size_t>(comm.rank())];
          train(one, model, wrapper, comm, outcome.losses);
          outcome.state = state_of(*model.module);
        }) == rondo::test::nothing(kRanks));
  return outcomes;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<double>::infinity();
  double apart = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  return std::sqrt(apart / length);
}

std::optional<Json> results(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return Json::parse(file);
}

void compare(const Outcome& ours, const Json& python, int rank, double tolerance) {
  CHECK(distance(ours.losses, python.at("losses").at(static_cast<std::size_t>(rank)).get<std::vector<double>>()) <=
        tolerance);
  const Json& state =
      python.contains("states") ? python.at("states").at(static_cast<std::size_t>(rank)) : python.at("state");
  CHECK(distance(ours.state, state.get<std::vector<double>>()) <= tolerance);
}

std::set<std::string> names(const Json& object) {
  std::set<std::string> all;
  for (const auto& item : object.items()) all.insert(item.key());
  return all;
}

}  // namespace

TEST_CASE("libtorch: losses, parameters and buffers are those of Python's DistributedDataParallel") {
  const auto kept = results(RONDO_BESIDE_KEPT);
  REQUIRE(kept);
  const auto here = results(RONDO_BESIDE_HERE);
  if (!here) WARN("skipped: the same bits as Python's on this machine; tools/torch-check current lets it run");
  std::set<std::string> ran;
  for (const auto& [name, one] : cases()) {
    INFO(name);
    const std::vector<Outcome> outcomes = run(one);
    const Json& python = kept->at("cases").at(name);
    const double tolerance = one.tolerance.value_or(one.type == torch::kFloat ? 1e-5 : 1e-11);
    for (int rank = 0; rank < kRanks; ++rank)
      compare(outcomes[static_cast<std::size_t>(rank)], python, rank, tolerance);
    if (here) compare(outcomes[0], here->at("cases").at(name), 0, one.same_bits ? 0 : tolerance);
    ran.insert(name);
  }
  CHECK(ran == names(kept->at("cases")));
}
