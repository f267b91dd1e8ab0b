// SPDX-License-Identifier: Apache-2.0
// Data-parallel training of a libtorch module. Header-only, on exported symbols of libtorch 1.13 and later.
//
//   auto net = std::make_shared<Net>();                        // .to(device) and torch::load come before
//   rondo::DistributedDataParallel model(communicator, net);   // everybody has rank 0's parameters and buffers
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   optimizer.zero_grad();
//   loss(model->forward(images), labels).backward();           // returns with averaged gradients
//   optimizer.step();
#pragma once
#include <torch/nn/pimpl.h>

#include <rondo/torch/averaged_gradients.hpp>
#include <rondo/torch/checkpoint.hpp>
#include <rondo/torch/sharded_optimizer.hpp>
#include <rondo/torch/values.hpp>

namespace rondo {

template <class Module>
class DistributedDataParallel {
 public:
  // Collective. The communicator outlives this and is on the device of the module. Parameters that need no gradient are
  // only made equal. On a GPU the backward pass runs on options.stream (null: the default stream). Of the options,
  // `buffers` and `gradients_in_buckets` are set here. Error(invalid_argument), Error(unsupported) for a module that
  // cannot be trained so, Error(mismatch) on every rank when modules differ.
  DistributedDataParallel(Communicator& communicator, std::shared_ptr<Module> module,
                          trainer::SynchronizerOptions options = {.broadcast_buffers_each_step = true})
      : module_(std::move(module)),
        gradients_(detail::AveragedGradients::attach(communicator, module_, std::move(options))) {}
  DistributedDataParallel(Communicator& communicator, torch::nn::ModuleHolder<Module> holder,
                          trainer::SynchronizerOptions options = {.broadcast_buffers_each_step = true})
      : DistributedDataParallel(communicator, holder.ptr(), std::move(options)) {}

  // The module. Error(invalid_argument) when it went to another device or type since: then no gradient would come.
  Module* operator->() const { return &**this; }
  Module& operator*() const {
    gradients_->check_in_place();
    return *module_;
  }
  const std::shared_ptr<Module>& module() const {
    gradients_->check_in_place();
    return module_;
  }

  // While one lives, backward() only adds up; the first one after averages the sums.
  [[nodiscard]] auto no_sync() { return detail::AveragedGradients::NoSync(*gradients_); }

  // For ranks whose batches end sooner: after zero_grad(), instead of forward and backward, until it says false. True:
  // others made a step and the gradients hold its averages, so step the optimizer.
  bool join_step() { return gradients_->join_step(); }

  // The model for DriftCheck and checkpoints; statistics, unused parameters and progress.
  const std::vector<trainer::Parameter>& parameters() const { return gradients_->parameters(); }
  const trainer::GradientSynchronizer& synchronizer() const { return gradients_->synchronizer(); }

 private:
  std::shared_ptr<Module> module_;
  std::shared_ptr<detail::AveragedGradients> gradients_;
};

// Holders are made with TORCH_MODULE: torch::nn::Linear, one's own Net.
template <class Holder>
DistributedDataParallel(Communicator&, Holder) -> DistributedDataParallel<typename Holder::ContainedType>;
template <class Holder>
DistributedDataParallel(Communicator&, Holder, trainer::SynchronizerOptions)
    -> DistributedDataParallel<typename Holder::ContainedType>;
template <class Module>
DistributedDataParallel(Communicator&, std::shared_ptr<Module>) -> DistributedDataParallel<Module>;
template <class Module>
DistributedDataParallel(Communicator&, std::shared_ptr<Module>, trainer::SynchronizerOptions)
    -> DistributedDataParallel<Module>;

}  // namespace rondo
