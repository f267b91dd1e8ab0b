// SPDX-License-Identifier: Apache-2.0
// What <rondo/torch.hpp> does behind the module: gradients get their place in the synchronizer's buckets, a hook behind
// each accumulation calls ready(), the end of the backward pass calls finish(). The node that accumulates can be
// another one at any time (Tensor::set_, which torch::load calls, forgets it); a hook of the tensor, which stays, sees
// that it is listened to again. One thread at a time runs backward().
#pragma once
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rondo/torch/module_tensors.hpp>
#include <rondo/torch/nested_passes.hpp>
#include <rondo/trainer/gather.hpp>
#include <rondo/trainer/gradient_synchronizer.hpp>

namespace rondo::detail {

class AveragedGradients : public std::enable_shared_from_this<AveragedGradients> {
 public:
  static std::shared_ptr<AveragedGradients> attach(Communicator& communicator,
                                                   std::shared_ptr<torch::nn::Module> module,
                                                   trainer::SynchronizerOptions options,
                                                   const std::vector<std::string>& ignored) {
    std::shared_ptr<AveragedGradients> self(new AveragedGradients(communicator, std::move(module), ignored));
    self->start(std::move(options));
    for (std::size_t i = 0; i < self->trained_.size(); ++i) self->take_over(i);
    for (const NamedTensor& tensor : self->tensors_.frozen()) self->watch(tensor.value, kFrozen);
    return self;
  }
  AveragedGradients(const AveragedGradients&) = delete;
  AveragedGradients& operator=(const AveragedGradients&) = delete;

  // The buckets go with the synchronizer: gradients that live there become the module's own. Those of a step that did
  // not end are nothing, and may still be written.
  ~AveragedGradients() {
    const torch::NoGradGuard guard;
    for (const auto& [tensor, hook] : watched_) tensor.remove_hook(hook);
    const bool whole = std::none_of(trained_.begin(), trained_.end(), [](const Trained& t) { return t.ready; });
    for (Trained& t : trained_) {
      if (!lives_in_bucket(t)) continue;
      torch::Tensor own;
      try {
        if (whole) own = t.gradient.clone();
      } catch (const std::exception&) {
        // no memory for it: better none than one that dangles
      }
      t.value().mutable_grad() = own;
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

  // Error(invalid_argument) when the module's tensors are not what they were when it was wrapped.
  void check() const { tensors_.check(); }

  bool join_step() {
    check();
    follow_buffers();
    if (!synchronizer_->join_step()) return false;
    show_averages();
    return true;
  }
  std::vector<trainer::Parameter> parameters() const {
    check();
    std::vector<trainer::Parameter> all;
    for (const Trained& t : trained_) {
      all.push_back(parameter_of(*t.tensor));
      all.back().gradient = gradient_of(*t.tensor);
    }
    return all;
  }
  std::vector<trainer::Parameter> state() const {
    check();
    return tensors_.state();
  }
  std::vector<trainer::Parameter> kept_equal() const {
    check();
    return tensors_.kept_equal();
  }
  trainer::GradientSynchronizer& synchronizer() { return *synchronizer_; }

 private:
  // Shared pointers in libtorch 1.13, intrusive ones later.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  struct Trained {
    const NamedTensor* tensor;
    torch::Tensor gradient{};   // its place in the buckets
    Accumulator accumulator{};  // with a hook of ours; tensors hold it only weakly
    bool late = false;          // it accumulates in this pass, but without a hook
    bool ready = false;         // in this backward pass
    int seen = 0;               // gradients of this pass
    int expected = 0;           // of a static graph: those of the first step
    bool noted = false;         // under no_sync since the last step

    const torch::Tensor& value() const { return tensor->value; }
  };
  static constexpr std::size_t kFrozen = static_cast<std::size_t>(-1);

  // Of a tensor: a gradient for it is here, and will be accumulated. These hooks stay whatever becomes of the tensor.
  struct Arrival {
    std::weak_ptr<AveragedGradients> gradients;  // a graph may outlive the wrapper
    std::size_t index;

    at::TensorBase operator()(const at::TensorBase&) const {
      const auto all = gradients.lock();
      if (all && index == kFrozen) all->end_pass_later();
      if (all && index != kFrozen) all->on_arrival(index);
      return {};
    }
  };

  // Of an accumulator: the gradient is complete.
  class Hook : public torch::autograd::FunctionPostHook {
   public:
    Hook(std::weak_ptr<AveragedGradients> gradients, std::size_t index)
        : gradients_(std::move(gradients)), index_(index) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list& inputs) override {
      const bool accumulated = !inputs.empty() && inputs.front().defined();
      if (const auto gradients = gradients_.lock(); gradients && accumulated) gradients->on_gradient(index_);
      return outputs;
    }

   private:
    std::weak_ptr<AveragedGradients> gradients_;
    std::size_t index_;
  };

  AveragedGradients(Communicator& communicator, std::shared_ptr<torch::nn::Module> module,
                    const std::vector<std::string>& ignored)
      : communicator_(communicator), tensors_(std::move(module), communicator, ignored) {}

  void start(trainer::SynchronizerOptions options) {
    std::vector<trainer::Parameter> parameters;
    for (const NamedTensor& tensor : tensors_.trained()) {
      check_free(tensor);
      parameters.push_back(parameter_of(tensor));
      trained_.push_back({&tensor});
    }
    for (const NamedTensor& buffer : tensors_.buffers()) options.buffers.push_back(buffer_of(buffer));
    options.gradients_in_buckets = true;
    static_graph_ = options.static_graph;
    if (static_graph_) NestedPasses::watch();
    const bool equal = options.broadcast_parameters;
    const Stream stream = options.stream;
    check_same();
    synchronizer_ =
        std::make_unique<trainer::GradientSynchronizer>(communicator_, std::move(parameters), std::move(options));
    if (!equal) return;
    for (const NamedTensor& tensor : tensors_.frozen()) {
      const trainer::Parameter p = buffer_of(tensor);
      communicator_.broadcast(p.values, p.values, p.count, p.dtype, 0, stream);
    }
    communicator_.synchronize(stream);
  }

  // Collective. What the synchronizer does not compare: tensors that it does not know.
  void check_same() {
    trainer::check_same_list(communicator_, "DistributedDataParallel", tensors_.description(),
                             "freeze and ignore the same tensors on every rank");
  }

  // Two wrappers would each average, and copy from one another's buckets while those are on their way.
  static void check_free(const NamedTensor& tensor) {
    const auto* const meta = torch::autograd::impl::get_autograd_meta(tensor.value);
    if (meta == nullptr || !meta->cpp_hooks_list_) return;
    for (const auto& hook : *meta->cpp_hooks_list_) {
      const auto* const arrival = hook.template target<Arrival>();
      if (arrival == nullptr || arrival->gradients.expired()) continue;
      torch_refuse("parameter '" + tensor.name +
                   "' is in a module that is wrapped already; let the other DistributedDataParallel go first");
    }
  }

  void take_over(std::size_t index) {
    Trained& t = trained_[index];
    t.gradient = tensor_at(synchronizer_->parameters()[index].gradient, t.value());
    if (t.value().grad().defined()) move_in(index);
    watch(t.value(), index);
    listen(index);
  }
  // Only tensors that need a gradient take hooks.
  void watch(const torch::Tensor& tensor, std::size_t index) {
    const bool frozen = !tensor.requires_grad();
    if (frozen && (!tensor.is_leaf() || !tensor.is_floating_point() || tensor.is_inference())) return;
    if (frozen) tensor.set_requires_grad(true);
    const at::TensorBase& base = tensor;  // whose hooks are kept as they are, so that check_free finds ours
    watched_.emplace_back(tensor, base.register_hook(Arrival{weak_from_this(), index}));
    if (frozen) tensor.set_requires_grad(false);
  }
  void listen(std::size_t index) {
    Trained& t = trained_[index];
    t.accumulator = torch::autograd::impl::grad_accumulator(t.value());
    t.accumulator->add_post_hook(std::make_unique<Hook>(weak_from_this(), index));
  }

  // By every hook: a pass that failed takes its callbacks with it, and then the token. The first one to run does the
  // work.
  void end_pass_later() {
    std::shared_ptr<char> token = pass_.lock();
    if (!token) {
      if (std::any_of(trained_.begin(), trained_.end(), [](const Trained& t) { return t.seen != 0; }))
        refuse_leftovers();
      pass_ = token = std::make_shared<char>();
    }
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), token] {
      if (const auto self = weak.lock()) self->on_backward_end();
    });
    in_pass_ = true;
  }
  [[noreturn]] static void refuse_leftovers() {
    torch_refuse(
        "the backward pass before this one ended with an exception; the ranks are no longer in step, so let the "
        "exception end this rank");
  }

  void on_arrival(std::size_t index) {
    Trained& t = trained_[index];
    if (!is_of_kind(*t.tensor)) tensors_.check();
    if (!t.value().requires_grad()) return;  // frozen since the forward pass: nothing will be added
    if (t.accumulator == torch::autograd::impl::grad_accumulator(t.value())) return;
    listen(index);
#if TORCH_VERSION_MAJOR < 2  // the accumulator is already running there, and has looked for hooks behind it
    t.late = true;
    end_pass_later();
#endif
  }

  void on_gradient(std::size_t index) {
    Trained& t = trained_[index];
    if (!t.value().requires_grad()) return;  // frozen since the forward pass: nothing was added
    if (t.ready) {
      torch_refuse("parameter '" + t.tensor->name +
                   "' got a second gradient in one step: the backward pass before this one ended with an exception, "
                   "or this one goes through a graph from before the parameter got other memory, or runs another one "
                   "inside it, which a static graph may; the ranks are no longer in step, so let the exception end "
                   "this rank");
    }
    end_pass_later();
    if (!static_graph_) return hand_over(index);
    ++t.seen;
    if (is_deferred()) {
      arrived_.push_back(index);
    } else if (t.seen >= t.expected) {
      hand_over(index);
    }
  }
  // How often a gradient is added to in a pass is known from the first step.
  bool is_deferred() const { return static_graph_ && (!graph_known_ || paused_ != 0); }
  // In the order in which they became complete, which the synchronizer learns.
  void hand_over_deferred() {
    std::vector<std::size_t> last_first;
    for (auto index = arrived_.rbegin(); index != arrived_.rend(); ++index) {
      if (std::find(last_first.begin(), last_first.end(), *index) == last_first.end()) last_first.push_back(*index);
    }
    for (auto index = last_first.rbegin(); index != last_first.rend(); ++index) {
      if (paused_ == 0) trained_[*index].expected = trained_[*index].seen;
      hand_over(*index);
    }
    arrived_.clear();
    graph_known_ |= paused_ == 0;
  }
  void hand_over(std::size_t index) {
    if (paused_ == 0) move_in(index);
    trained_[index].ready = true;
    synchronizer_->ready(index);
  }

  // Without a copy where the gradient accumulated in its place, that is after zero_grad(false).
  void move_in(std::size_t index) {
    Trained& t = trained_[index];
    torch::Tensor& gradient = t.value().mutable_grad();
    if (gradient.layout() != torch::kStrided) {
      torch_refuse("the gradient of parameter '" + t.tensor->name + "' is sparse; make its layer with sparse(false)");
    }
    if (lives_in_bucket(t)) return;
    const torch::NoGradGuard guard;
    const torch::Tensor place = tensor_at(synchronizer_->parameters()[index].gradient, t.value());
    place.copy_(gradient);
    gradient = t.gradient = place;
  }
  static bool lives_in_bucket(const Trained& t) {
    const torch::Tensor& gradient = t.value().grad();
    return gradient.defined() && gradient.unsafeGetTensorImpl() == t.gradient.unsafeGetTensorImpl();
  }

  void on_backward_end() {
    if (!std::exchange(in_pass_, false)) return;
    if (static_graph_ && NestedPasses::is_nested()) {
      NestedPasses::at_end_of_node([weak = weak_from_this(), token = pass_.lock()] {
        if (const auto self = weak.lock()) self->end_pass_later();
      });
      return;
    }
    if (is_deferred()) hand_over_deferred();
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      Trained& t = trained_[i];
      if ((t.late || t.seen != 0) && !t.ready) hand_over(i);
      t.late = false;
      t.seen = 0;
    }
    // While the last buckets are on their way. What is wrong is said at the end of the step, to all who did the same.
    const std::optional<Error> wrong = what_is_wrong();
    follow_buffers();
    if (paused_ != 0) {
      synchronizer_->finish();
      for (Trained& t : trained_) t.noted |= std::exchange(t.ready, false);
    } else {
      move_in_noted();
      synchronizer_->finish();
      for (Trained& t : trained_) t.noted = t.ready = false;
      show_averages();
    }
    if (wrong) throw Error(*wrong);
  }
  std::optional<Error> what_is_wrong() {
    try {
      check();
      return {};
    } catch (const Error& error) {
      return error;
    }
  }

  // Not in this pass, but under no_sync before it; zero_grad may have been called since.
  void move_in_noted() {
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      if (trained_[i].ready || !trained_[i].noted) continue;
      if (trained_[i].value().grad().defined()) {
        move_in(i);
      } else {
        trained_[i].gradient.zero_();
      }
    }
  }

  // Also where this rank had no gradient, but others did. Those that nobody had stay as they are, undefined too.
  void show_averages() {
    std::vector<char> averaged(trained_.size(), 1);
    for (const std::size_t index : synchronizer_->unused_everywhere()) averaged[index] = 0;
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      if (averaged[i] && !lives_in_bucket(trained_[i])) trained_[i].value().mutable_grad() = trained_[i].gradient;
    }
  }

  // The synchronizer broadcasts buffers from where it knows them to be.
  void follow_buffers() {
    tensors_.follow();
    for (std::size_t i = 0; i < tensors_.buffers().size(); ++i)
      synchronizer_->move_buffer(i, tensors_.buffers()[i].home.data_ptr());
  }

  Communicator& communicator_;
  ModuleTensors tensors_;
  std::vector<Trained> trained_;
  std::vector<std::pair<torch::Tensor, unsigned>> watched_;
  std::unique_ptr<trainer::GradientSynchronizer> synchronizer_;
  int paused_ = 0;
  bool in_pass_ = false;      // a hook was called since the last end of a pass
  std::weak_ptr<char> pass_;  // kept by what will end the pass
  bool static_graph_ = false, graph_known_ = false;
  std::vector<std::size_t> arrived_;  // of a static graph not known yet: gradients of this pass
};

}  // namespace rondo::detail
