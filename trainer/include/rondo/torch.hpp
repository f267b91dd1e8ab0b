// SPDX-License-Identifier: Apache-2.0
// Data-parallel training of a libtorch module. Header-only, on exported symbols of libtorch 1.13 and later.
//
//   auto net = std::make_shared<Net>();                        // .to(device) comes before
//   rondo::DistributedDataParallel model(communicator, net);   // everybody has rank 0's parameters and buffers
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   optimizer.zero_grad();
//   loss(model->forward(images), labels).backward();           // returns with averaged gradients
//   optimizer.step();
//
// Between two steps the module's tensors may go to other memory (torch::load, by all ranks, of the module or a part of
// it; set_, set_data), be frozen and thawed. When one of them changes its type, device or shape, when one that was
// frozen needs a gradient, and when a tensor is added or takes another's place (replace_module), the next backward() or
// call of the wrapper throws Error(invalid_argument) that names it: wrap the module again. What nobody can see:
// gradients that torch::autograd::grad returns, which are never averaged; and a backward pass that reaches none of the
// tensors that the module had, all having been replaced, where the wrapper is not called again.
#pragma once
#include <torch/nn/pimpl.h>

#include <rondo/torch/averaged_gradients.hpp>
#include <rondo/torch/checkpoint.hpp>
#include <rondo/torch/sharded_optimizer.hpp>
#include <rondo/torch/values.hpp>

namespace rondo {

// trainer::SynchronizerOptions, as far as they are not the wrapper's own business, with the same defaults.
struct DataParallelOptions {
  // See SynchronizerOptions.
  std::size_t first_bucket_bytes = trainer::SynchronizerOptions{}.first_bucket_bytes;
  std::size_t bucket_bytes = trainer::SynchronizerOptions{}.bucket_bytes;
  bool broadcast_parameters = trainer::SynchronizerOptions{}.broadcast_parameters;
  Stream stream = nullptr;  // of a GPU, on which the backward pass runs; null: the default stream
  // Rank 0's running statistics for all, at the end of each step.
  bool broadcast_buffers_each_step = trainer::SynchronizerOptions{}.broadcast_buffers_each_step;
  std::shared_ptr<trainer::BucketHook> hook{};  // null: all_reduce
  // Also: a backward pass may run others inside it (checkpointing), and add to a parameter several times.
  bool static_graph = trainer::SynchronizerOptions{}.static_graph;
  // Names of parameters and buffers that are neither made equal nor averaged: each rank's own, with gradients of its
  // own. The same names on every rank, and all of a tensor's names or none.
  std::vector<std::string> ignored{};

  // What of this the synchronizer is told.
  trainer::SynchronizerOptions for_synchronizer() const {
    return {.first_bucket_bytes = first_bucket_bytes,
            .bucket_bytes = bucket_bytes,
            .broadcast_parameters = broadcast_parameters,
            .stream = stream,
            .broadcast_buffers_each_step = broadcast_buffers_each_step,
            .hook = hook,
            .static_graph = static_graph};
  }
};

// Averages the gradients of a module over all ranks while its backward pass runs. One thread at a time; any thread of
// libtorch's may run the backward pass.
template <class Module>
class DistributedDataParallel {
 public:
  // Collective. The communicator outlives this and is on the device of the module. Parameters that need no gradient are
  // only made equal. Error(invalid_argument), Error(unsupported) for a module that cannot be trained so, and for one
  // that is wrapped already; Error(mismatch) on every rank when modules differ.
  DistributedDataParallel(Communicator& communicator, std::shared_ptr<Module> module, DataParallelOptions options = {})
      : module_(std::move(module)),
        gradients_(
            detail::AveragedGradients::attach(communicator, module_, options.for_synchronizer(), options.ignored)) {}
  DistributedDataParallel(Communicator& communicator, torch::nn::ModuleHolder<Module> holder,
                          DataParallelOptions options = {})
      : DistributedDataParallel(communicator, holder.ptr(), std::move(options)) {}

  // The module. As every call here, Error(invalid_argument) when its tensors became what the wrapper cannot average.
  Module* operator->() const { return &**this; }
  Module& operator*() const {
    gradients_->check();
    return *module_;
  }
  const std::shared_ptr<Module>& module() const {
    gradients_->check();
    return module_;
  }

  // While one lives, backward() only adds up; the first one after averages the sums.
  [[nodiscard]] auto no_sync() { return detail::AveragedGradients::NoSync(*gradients_); }

  // For ranks whose batches end sooner: after zero_grad(), instead of forward and backward, until it says false. True:
  // others made a step and the gradients hold its averages, so step the optimizer.
  bool join_step() { return gradients_->join_step(); }

  // Before the forward pass, with the number of the batch: backward() throws Error(mismatch) on every rank when ranks
  // are in different ones, as after a `continue` on one of them. The moments are for the statistics too; see
  // GradientSynchronizer.
  void begin_forward(std::uint64_t batch) { checked().begin_forward(batch); }
  void begin_forward() { checked().begin_forward(); }
  void begin_backward() { checked().begin_backward(); }

  // All that the module holds: trained and frozen parameters, buffers and, last, what is ignored, under the module's
  // names, a shared tensor once. For checkpoints. Types that the library does not calculate with are bytes (u8). True
  // until a tensor goes to other memory. Error(invalid_argument) where an ignored tensor is on another device or not
  // contiguous.
  std::vector<trainer::Parameter> state() const { return gradients_->state(); }
  // The same without what is ignored: what has the same bits on every rank. For DriftCheck.
  std::vector<trainer::Parameter> kept_equal() const { return gradients_->kept_equal(); }
  // The trained ones, with their gradients; a null gradient is one that the module does not have now (undefined). For
  // clip_gradients, LossScaler and ShardedOptimizer::step. Ask again after every step.
  std::vector<trainer::Parameter> parameters() const { return gradients_->parameters(); }
  // Statistics, unused parameters, progress.
  const trainer::GradientSynchronizer& synchronizer() const { return checked(); }

 private:
  trainer::GradientSynchronizer& checked() const {
    gradients_->check();
    return gradients_->synchronizer();
  }

  std::shared_ptr<Module> module_;
  std::shared_ptr<detail::AveragedGradients> gradients_;
};

// Holders are made with TORCH_MODULE: torch::nn::Linear, one's own Net.
template <class Holder>
DistributedDataParallel(Communicator&, Holder) -> DistributedDataParallel<typename Holder::ContainedType>;
template <class Holder>
DistributedDataParallel(Communicator&, Holder, DataParallelOptions)
    -> DistributedDataParallel<typename Holder::ContainedType>;
template <class Module>
DistributedDataParallel(Communicator&, std::shared_ptr<Module>) -> DistributedDataParallel<Module>;
template <class Module>
DistributedDataParallel(Communicator&, std::shared_ptr<Module>, DataParallelOptions) -> DistributedDataParallel<Module>;

}  // namespace rondo
