// SPDX-License-Identifier: Apache-2.0
// What users do wrong has its sentence on every rank that it reaches, and nothing hangs.
#include "tests/torch/models.hpp"

namespace {

using rondo::Communicator;
using rondo::DistributedDataParallel;
using rondo::test::contains;
using rondo::test::loss_of;
using rondo::test::noise;
using rondo::test::torch_ranks;
using rondo::test::toy;
using torch::Tensor;

const Tensor& batch() {
  static const Tensor x = noise({5, 6}, 1);
  return x;
}

struct OneTensorImpl : torch::nn::Module {
  explicit OneTensorImpl(Tensor tensor) { register_parameter("weight", std::move(tensor)); }
};
TORCH_MODULE(OneTensor);

template <class Body>
std::string thrown_alone(Body body, rondo::Options options = {}) {
  return torch_ranks(1, body, std::move(options))[0];
}
template <class Module>
std::string refused(Module module) {
  return thrown_alone([&](Communicator& comm) { DistributedDataParallel model(comm, module); });
}

}  // namespace

TEST_CASE("libtorch: wrapped before the module went to another type or device") {
  const std::string said = thrown_alone([](Communicator& comm) {
    auto net = toy(0);
    const DistributedDataParallel model(comm, net);
    model->to(torch::kFloat);
    loss_of(net, batch().to(torch::kFloat)).backward();  // no hook is called any more
    model->forward(batch());
  });
  CHECK(contains(said, "'0.weight' was Double on cpu when the module was wrapped and is Float on cpu now"));
  const std::string device = thrown_alone([](Communicator& comm) {
    torch::nn::Linear net(torch::nn::LinearOptions(2, 2));
    const DistributedDataParallel model(comm, net);
    for (Tensor& p : net->parameters()) p.set_data(p.to(torch::kDouble));
    model.module();
  });
  CHECK(contains(device, "call module->to(...) first and wrap the module then"));
}

TEST_CASE("libtorch: a communicator on another device than the module") {
  const std::string said = thrown_alone([](Communicator& comm) { DistributedDataParallel model(comm, toy(0)); },
                                        {.device = rondo::Device::sim(), .timeout = rondo::test::kTorchDeadline});
  CHECK(contains(said, "libtorch has no tensors on a simulated device"));
  CHECK(contains(refused(OneTensor(torch::empty({2, 2}, torch::kMeta))),
                 "'weight' is on meta, but the communicator on cpu; call module->to(...) before"));
}

TEST_CASE("libtorch: modules that cannot be trained so") {
  CHECK(contains(refused(std::shared_ptr<torch::nn::SequentialImpl>()), "there is no module"));
  auto frozen = toy(0);
  for (Tensor& p : frozen->parameters()) p.set_requires_grad(false);
  CHECK(contains(refused(frozen), "no parameters to train"));
  CHECK(contains(refused(OneTensor(torch::zeros({3, 2}).t())), "'weight' is not contiguous; call .contiguous()"));
  CHECK(contains(refused(OneTensor(torch::zeros({2, 2}, torch::kComplexFloat))),
                 "'weight' is ComplexFloat on cpu, which cannot be averaged"));
}

TEST_CASE("libtorch: a module that is wrapped already, as a whole or in part") {
  const bool part = GENERATE(false, true);
  CHECK(contains(thrown_alone([&](Communicator& comm) {
                   auto net = toy(0);
                   const DistributedDataParallel model(comm, net);
                   if (part) DistributedDataParallel(comm, net[0]->as<torch::nn::Linear>()->shared_from_this());
                   DistributedDataParallel(comm, net.ptr());
                 }),
                 "is in a module that is wrapped already; let the other DistributedDataParallel go first"));
}

TEST_CASE("libtorch: a sparse gradient") {
  CHECK(contains(thrown_alone([](Communicator& comm) {
                   torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 3).sparse(true));
                   DistributedDataParallel model(comm, table);
                   torch::sum(model->forward(torch::tensor({1, 2}))).backward();
                 }),
                 "the gradient of parameter 'weight' is sparse; make its layer with sparse(false)"));
}

TEST_CASE("libtorch: parameters that came after the wrapping") {
  const bool added = GENERATE(true, false);
  const auto said = torch_ranks(2, [&](Communicator& comm) {
    auto net = toy(0);
    Tensor bias = net[2]->as<torch::nn::Linear>()->bias;
    if (!added) bias.set_requires_grad(false);
    const DistributedDataParallel model(comm, net);
    if (added) net->push_back(torch::nn::Linear(torch::nn::LinearOptions(3, 3)));
    if (added) net->to(torch::kDouble);
    bias.set_requires_grad(true);
    loss_of(net, batch()).backward();
  });
  const std::string name = added ? "'3.weight'" : "'2.bias'";
  INFO(said[0] << '\n' << said[1]);
  for (const std::string& one : said)
    CHECK(contains(one, "parameter " + name + " was added, or began to need a gradient, after the module was wrapped"));
}

TEST_CASE("libtorch: different modules, named on every rank") {
  const auto said = torch_ranks(2, [](Communicator& comm) {
    DistributedDataParallel model(comm, torch::nn::Linear(torch::nn::LinearOptions(2, 2 + comm.rank())));
  });
  for (const std::string& one : said) CHECK(contains(one, "rank 1: 'weight' with 6 elements of f32 in shape [3, 2]"));
}

TEST_CASE("libtorch: an exception in one rank's backward pass ends the others'") {
  const auto said = torch_ranks(2, [](Communicator& comm) {
    auto net = toy(0);
    const DistributedDataParallel model(comm, net);
    const Tensor hidden = net[0]->as<torch::nn::Linear>()->forward(batch());
    if (comm.rank() == 1) hidden.register_hook([](const Tensor&) { throw std::runtime_error("of the user"); });
    torch::sum(net[2]->as<torch::nn::Linear>()->forward(hidden)).backward();
  });
  CHECK(contains(said[1], "of the user"));
  INFO(said[0]);
  CHECK(contains(said[0], "this was step 0 of a GradientSynchronizer"));
}

TEST_CASE("libtorch: going on after a backward pass that failed") {
  CHECK(contains(thrown_alone([](Communicator& comm) {
                   auto net = toy(0);
                   const DistributedDataParallel model(comm, net);
                   const auto pass = [&](bool fail) {
                     const Tensor hidden = net[0]->as<torch::nn::Linear>()->forward(batch());
                     if (fail) hidden.register_hook([](const Tensor&) { throw std::runtime_error("of the user"); });
                     torch::sum(net[2]->as<torch::nn::Linear>()->forward(hidden)).backward();
                   };
                   try {
                     pass(true);
                   } catch (const std::runtime_error&) {
                     // what no program should do
                   }
                   pass(false);
                 }),
                 "the backward pass before this one ended with an exception"));
}
