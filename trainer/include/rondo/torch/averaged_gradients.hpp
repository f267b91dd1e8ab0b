// SPDX-License-Identifier: Apache-2.0
// What <rondo/torch.hpp> does behind the module: gradients get their place in the synchronizer's buckets, a hook behind
// each accumulation calls ready(), the end of the backward pass calls finish(). One thread at a time runs backward().
#pragma once
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <rondo/torch/tensors.hpp>
#include <rondo/trainer/gradient_synchronizer.hpp>

namespace rondo::detail {

class AveragedGradients : public std::enable_shared_from_this<AveragedGradients> {
 public:
  static std::shared_ptr<AveragedGradients> attach(Communicator& communicator,
                                                   std::shared_ptr<torch::nn::Module> module,
                                                   trainer::SynchronizerOptions options) {
    if (!module) torch_refuse("there is no module");
    std::shared_ptr<AveragedGradients> self(new AveragedGradients(communicator, std::move(module)));
    self->start(std::move(options));
    for (std::size_t i = 0; i < self->trained_.size(); ++i) self->listen(i);
    return self;
  }
  AveragedGradients(const AveragedGradients&) = delete;
  AveragedGradients& operator=(const AveragedGradients&) = delete;

  // The buckets go with the synchronizer: gradients that live there become the module's own. Those of a step that did
  // not end are nothing, and may still be written.
  ~AveragedGradients() {
    const torch::NoGradGuard guard;
    const bool whole = std::none_of(trained_.begin(), trained_.end(), [](const Trained& t) { return t.ready; });
    for (Trained& t : trained_) {
      if (!lives_in_bucket(t)) continue;
      torch::Tensor own;
      try {
        if (whole) own = t.gradient.clone();
      } catch (const std::exception&) {
        // no memory for it: better none than one that dangles
      }
      t.tensor.value.mutable_grad() = own;
    }
  }

  class NoSync {
   public:
    explicit NoSync(AveragedGradients& gradients)
        : gradients_(gradients.shared_from_this()), inner_(gradients.synchronizer_->no_sync()) {
      ++gradients_->paused_;
    }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync() { --gradients_->paused_; }

   private:
    std::shared_ptr<AveragedGradients> gradients_;
    trainer::GradientSynchronizer::NoSync inner_;
  };

  // Accumulators belong to a type and a device: after a move the hooks are gone, and no gradient would ever come.
  void check_in_place() const {
    for (const Trained& t : trained_) rondo::detail::check_in_place(t.tensor);
    for (const NamedTensor& buffer : buffers_) rondo::detail::check_in_place(buffer);
  }

  bool join_step() {
    bring_home();
    if (!synchronizer_->join_step()) return false;
    show_averages();
    return true;
  }
  const std::vector<trainer::Parameter>& parameters() {
    bring_home();
    return synchronizer_->parameters();
  }
  const trainer::GradientSynchronizer& synchronizer() const { return *synchronizer_; }

 private:
  // Shared pointers in libtorch 1.13, intrusive ones later.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  struct Trained {
    NamedTensor tensor;
    torch::Tensor gradient;     // its place in the buckets
    Accumulator accumulator{};  // parameters only hold it weakly, and the hook lives in it
    bool ready = false;         // in this backward pass
    bool noted = false;         // under no_sync since the last step
  };

  class Hook : public torch::autograd::FunctionPostHook {
   public:
    Hook(std::weak_ptr<AveragedGradients> gradients, std::size_t index)
        : gradients_(std::move(gradients)), index_(index) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      if (const auto gradients = gradients_.lock()) gradients->on_gradient(index_);
      return outputs;
    }

   private:
    std::weak_ptr<AveragedGradients> gradients_;  // a graph may outlive the wrapper
    std::size_t index_;
  };

  AveragedGradients(Communicator& communicator, std::shared_ptr<torch::nn::Module> module)
      : communicator_(communicator), module_(std::move(module)) {}

  // Shared tensors count once, at their first name, which is the same on every rank.
  void start(trainer::SynchronizerOptions options) {
    std::vector<trainer::Parameter> parameters;
    std::vector<trainer::Parameter> frozen;
    std::unordered_set<const void*> seen;
    for (const auto& item : module_->named_parameters()) {
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      NamedTensor tensor = named_tensor(item.key(), item.value(), communicator_);
      if (!item.value().requires_grad()) {
        frozen.push_back(buffer_of(tensor));
        continue;
      }
      parameters.push_back(parameter_of(tensor));
      trained_.push_back({std::move(tensor), {}});
    }
    for (const auto& item : module_->named_buffers()) {
      if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      buffers_.push_back(named_tensor(item.key(), item.value(), communicator_));
      options.buffers.push_back(buffer_of(buffers_.back()));
    }
    options.gradients_in_buckets = true;
    const bool equal = options.broadcast_parameters;
    const Stream stream = options.stream;
    synchronizer_ =
        std::make_unique<trainer::GradientSynchronizer>(communicator_, std::move(parameters), std::move(options));
    if (!equal) return;
    for (const trainer::Parameter& p : frozen) communicator_.broadcast(p.values, p.values, p.count, p.dtype, 0, stream);
    communicator_.synchronize(stream);
  }

  void listen(std::size_t index) {
    Trained& t = trained_[index];
    const torch::NoGradGuard guard;
    t.gradient = tensor_at(synchronizer_->parameters()[index].gradient, t.tensor.value);
    if (t.tensor.value.grad().defined()) move_in(t);
    t.accumulator = torch::autograd::impl::grad_accumulator(t.tensor.value);
    t.accumulator->add_post_hook(std::make_unique<Hook>(weak_from_this(), index));
    known_.insert(t.tensor.value.unsafeGetTensorImpl());
  }

  void on_gradient(std::size_t index) {
    Trained& t = trained_[index];
    if (t.ready) {
      torch_refuse("parameter '" + t.tensor.name +
                   "' got a second gradient in one step: the backward pass before this one ended with an exception, "
                   "and so the ranks are no longer in step; let the exception end this rank");
    }
    // By every hook: a pass that failed takes its callbacks with it. The first one to run does the work.
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_backward_end();
    });
    if (paused_ == 0) move_in(t);
    t.ready = true;
    in_pass_ = true;
    synchronizer_->ready(index);
  }

  // Without a copy where the gradient accumulated in its place, that is after zero_grad(false).
  void move_in(Trained& t) {
    torch::Tensor& gradient = t.tensor.value.mutable_grad();
    if (gradient.layout() != torch::kStrided) {
      torch_refuse("the gradient of parameter '" + t.tensor.name + "' is sparse; make its layer with sparse(false)");
    }
    if (lives_in_bucket(t)) return;
    const torch::NoGradGuard guard;
    t.gradient.copy_(gradient);
    gradient = t.gradient;
  }
  static bool lives_in_bucket(const Trained& t) {
    const torch::Tensor& gradient = t.tensor.value.grad();
    return gradient.defined() && gradient.unsafeGetTensorImpl() == t.gradient.unsafeGetTensorImpl();
  }

  void on_backward_end() {
    if (!std::exchange(in_pass_, false)) return;
    if (paused_ != 0) {
      synchronizer_->finish();
      for (Trained& t : trained_) t.noted |= std::exchange(t.ready, false);
      return;
    }
    // While the last buckets are on their way. What is wrong is said at the end of the step, to all who did the same.
    const std::string late = late_parameter();
    bring_home();
    move_in_noted();
    synchronizer_->finish();
    for (Trained& t : trained_) t.noted = t.ready = false;
    show_averages();
    if (!late.empty()) {
      torch_refuse("parameter '" + late +
                   "' was added, or began to need a gradient, after the module was wrapped, so its gradients are not "
                   "averaged; wrap the module when it is complete");
    }
  }

  // Not in this pass, but under no_sync before it; zero_grad may have been called since.
  void move_in_noted() {
    for (Trained& t : trained_) {
      if (t.ready || !t.noted) continue;
      if (t.tensor.value.grad().defined()) {
        move_in(t);
      } else {
        t.gradient.zero_();
      }
    }
  }

  // Also where this rank had no gradient, but others did. Those that nobody had stay as they are, undefined too.
  void show_averages() {
    std::vector<char> averaged(trained_.size(), 1);
    for (const std::size_t index : synchronizer_->unused_everywhere()) averaged[index] = 0;
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      if (averaged[i] && !lives_in_bucket(trained_[i])) trained_[i].tensor.value.mutable_grad() = trained_[i].gradient;
    }
  }

  std::string late_parameter() const {
    for (const auto& item : module_->named_parameters()) {
      if (item.value().requires_grad() && known_.count(item.value().unsafeGetTensorImpl()) == 0) return item.key();
    }
    return {};
  }

  // torch::load gives tensors other memory; the synchronizer knows the one they had.
  void bring_home() {
    const torch::NoGradGuard guard;
    for (Trained& t : trained_) rondo::detail::bring_home(t.tensor);
    for (NamedTensor& buffer : buffers_) rondo::detail::bring_home(buffer);
  }

  Communicator& communicator_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Trained> trained_;
  std::vector<NamedTensor> buffers_;
  std::unordered_set<const void*> known_;  // of trained_
  std::unique_ptr<trainer::GradientSynchronizer> synchronizer_;
  int paused_ = 0;
  bool in_pass_ = false;  // a hook was called since the last end of a pass
};

}  // namespace rondo::detail
