// SPDX-License-Identifier: Apache-2.0
// Batch normalisation over the batches of all ranks: in training equal to BatchNorm on the joined batch, forward and
// backward; in evaluation BatchNorm itself. Parameters and buffers have BatchNorm's names, so checkpoints fit.
//
//   auto between = std::make_shared<rondo::Communicator>(comm.split(0, comm.rank()));
//   norm = register_module("norm", rondo::SyncBatchNorm(between, 16));   // in the module that is wrapped
//
// (Means and squared distances are put together as in Chan, Golub, LeVeque, 1979.)
#pragma once
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/utils.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo {
namespace detail {

// Held by the graph, which may outlive the layer.
struct NormPeers : torch::CustomClassHolder {
  explicit NormPeers(std::shared_ptr<Communicator> of) : communicator(std::move(of)) {}
  std::shared_ptr<Communicator> communicator;
};

// Every dimension but the second.
inline std::vector<std::int64_t> dims_beside_channels(const torch::Tensor& x) {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}
inline torch::Tensor along_channels(const torch::Tensor& of_channels, const torch::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  return of_channels.to(x.scalar_type()).view(shape);
}
inline torch::Tensor sum_of_channels(const torch::Tensor& x) {
  return torch::sum(x, dims_beside_channels(x), /*keepdim=*/false, torch::kDouble);
}

struct JoinedMoments {
  torch::Tensor mean, variance;  // of each channel, in double, on x's device; the variance is that of all elements
  double count = 0;              // elements of a channel on all ranks
};

inline JoinedMoments joined_moments(const torch::Tensor& x, Communicator& communicator) {
  const std::int64_t channels = x.size(1);
  const double here = channels == 0 ? 0 : static_cast<double>(x.numel() / channels);
  const torch::Tensor mean = sum_of_channels(x) / std::max(here, 1.0);
  const torch::Tensor squares = sum_of_channels((x - along_channels(mean, x)).square());
  const torch::Tensor mine = torch::cat({mean, squares, torch::full({1}, here, mean.options())}).cpu();
  const torch::Tensor all = torch::empty({communicator.world_size(), mine.numel()}, torch::kDouble);
  communicator.all_gather(mine.data_ptr(), all.data_ptr(), static_cast<std::size_t>(mine.numel()), DataType::f64);
  const torch::Tensor counts = all.narrow(1, 2 * channels, 1), means = all.narrow(1, 0, channels);
  const double count = counts.sum().item<double>();
  const torch::Tensor joined = (means * counts).sum(0) / count;
  const torch::Tensor spread = (all.narrow(1, channels, channels) + counts * (means - joined).square()).sum(0);
  return {joined.to(x.device()), (spread / count).to(x.device()), count};
}

struct NormalizeJoined : torch::autograd::Function<NormalizeJoined> {
  using Context = torch::autograd::AutogradContext;

  static torch::Tensor forward(Context* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const torch::Tensor& bias, const torch::Tensor& mean, const torch::Tensor& inverse,
                               double count, const c10::intrusive_ptr<NormPeers>& peers) {
    context->save_for_backward({x, weight, mean, inverse});
    context->saved_data["count"] = count;
    context->saved_data["peers"] = c10::IValue::make_capsule(peers);
    return (x - along_channels(mean, x)) * along_channels(weight.to(torch::kDouble) * inverse, x) +
           along_channels(bias, x);
  }

  // A loss depends on the other ranks' elements through the moments: their gradients are needed too.
  static torch::autograd::tensor_list backward(Context* context, torch::autograd::tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3];
    const torch::Tensor& dy = gradients[0];
    const double count = context->saved_data["count"].toDouble();
    const torch::Tensor normal = (x - along_channels(mean, x)) * along_channels(inverse, x);
    const torch::Tensor here = torch::stack({sum_of_channels(dy), sum_of_channels(dy * normal)});
    torch::Tensor sums = here.cpu().clone();
    const auto holder = context->saved_data["peers"].toCapsule();
    static_cast<NormPeers*>(holder.get())
        ->communicator->all_reduce(sums.data_ptr(), sums.data_ptr(), static_cast<std::size_t>(sums.numel()),
                                   DataType::f64, ReduceOp::sum);
    sums = sums.to(x.device()) / count;
    const torch::Tensor dx = (dy - along_channels(sums[0], x) - normal * along_channels(sums[1], x)) *
                             along_channels(weight.to(torch::kDouble) * inverse, x);
    return {dx, here[1].to(weight.scalar_type()), here[0].to(weight.scalar_type()), {}, {}, {}, {}};
  }
};

}  // namespace detail

// See above; torch::nn::BatchNorm's interface. One thread at a time.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  // `between`: a communicator on the CPU that nobody else uses during forward and backward passes, so not the one of
  // DistributedDataParallel but a split of it; layers may share it. All ranks run the same layers in the same order, in
  // the forward and in the backward pass. Clones share it too. Error(invalid_argument) where it is none, or on a
  // device.
  SyncBatchNormImpl(std::shared_ptr<Communicator> between, const torch::nn::BatchNormOptions& options)
      : options_(options), communicator_(std::move(between)) {
    if (!communicator_ || communicator_->world_size() < 1 || communicator_->device().kind != Device::Kind::cpu) {
      throw Error(ErrorCode::invalid_argument,
                  "SyncBatchNorm: moments go through the CPU; pass a communicator that was made with Device::cpu()");
    }
    reset();
  }

  // Parameters and buffers as they are at first.
  void reset() override {
    const std::int64_t n = options_.num_features();
    weight = register_parameter("weight", options_.affine() ? torch::ones({n}) : torch::Tensor(), options_.affine());
    bias = register_parameter("bias", options_.affine() ? torch::zeros({n}) : torch::Tensor(), options_.affine());
    const bool track = options_.track_running_stats();
    running_mean = register_buffer("running_mean", track ? torch::zeros({n}) : torch::Tensor());
    running_var = register_buffer("running_var", track ? torch::ones({n}) : torch::Tensor());
    num_batches_tracked =
        register_buffer("num_batches_tracked", track ? torch::tensor(0, torch::kInt64) : torch::Tensor());
  }

  // x: [batch, features, ...], of any number of elements on each rank, none included. In training collective.
  // Error(invalid_argument) for another shape, and for one value of a feature on all ranks, which has no variance.
  torch::Tensor forward(const torch::Tensor& x) {
    if (x.dim() < 2 || x.size(1) != options_.num_features()) {
      throw Error(ErrorCode::invalid_argument, "SyncBatchNorm: an input of " + c10::str(x.sizes()) + " has not " +
                                                   std::to_string(options_.num_features()) +
                                                   " features in dimension 1");
    }
    if (!is_training() && running_mean.defined()) {
      return torch::batch_norm(x, weight, bias, running_mean, running_var, false, 0, options_.eps(), false);
    }
    const bool narrow = x.scalar_type() == torch::kHalf || x.scalar_type() == torch::kBFloat16;
    const torch::Tensor wide = narrow ? x.to(torch::kFloat) : x;
    const detail::JoinedMoments moments = moments_of(wide);
    const torch::Tensor y =
        detail::NormalizeJoined::apply(wide, weight.defined() ? weight : torch::ones_like(moments.mean),
                                       bias.defined() ? bias : torch::zeros_like(moments.mean), moments.mean,
                                       (moments.variance + options_.eps()).rsqrt(), moments.count,
                                       c10::make_intrusive<detail::NormPeers>(communicator_));
    return narrow ? y.to(x.scalar_type()) : y;
  }
  void pretty_print(std::ostream& stream) const override {
    stream << "rondo::SyncBatchNorm(" << options_.num_features() << ", ranks=" << communicator_->world_size() << ")";
  }

  torch::Tensor weight;               // undefined unless affine
  torch::Tensor bias;                 // likewise
  torch::Tensor running_mean;         // undefined unless running statistics are tracked
  torch::Tensor running_var;          // likewise
  torch::Tensor num_batches_tracked;  // likewise

 private:
  detail::JoinedMoments moments_of(const torch::Tensor& x) {
    const torch::NoGradGuard guard;
    detail::JoinedMoments moments = detail::joined_moments(x, *communicator_);
    if (moments.count < 2) {
      throw Error(ErrorCode::invalid_argument,
                  "SyncBatchNorm: training needs more than one value of a feature on all ranks together");
    }
    if (!is_training() || !running_mean.defined()) return moments;
    num_batches_tracked += 1;
    const double share = options_.momentum() ? *options_.momentum() : 1 / num_batches_tracked.item<double>();
    const auto update = [share](torch::Tensor& running, const torch::Tensor& now) {
      running.mul_(1 - share).add_(now.to(running.scalar_type()) * share);
    };
    update(running_mean, moments.mean);
    update(running_var, moments.variance * (moments.count / (moments.count - 1)));
    return moments;
  }

  torch::nn::BatchNormOptions options_;
  std::shared_ptr<Communicator> communicator_;
};

// SyncBatchNorm, the holder of a SyncBatchNormImpl.
TORCH_MODULE(SyncBatchNorm);

}  // namespace rondo
