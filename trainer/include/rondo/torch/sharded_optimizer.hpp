// SPDX-License-Identifier: Apache-2.0
// ZeRO stage 1 for libtorch's optimizers: each rank's optimizer has a share of the parameters, so that it keeps their
// state alone; after its step all ranks get all values.
//
//   rondo::DistributedDataParallel model(communicator, net);
//   using Adam = torch::optim::Adam;
//   rondo::ShardedOptimizer<Adam> optimizer(communicator, net->parameters(), torch::optim::AdamOptions(1e-3));
//   optimizer.zero_grad();
//   loss(model->forward(images), labels).backward();
//   optimizer.step();
#pragma once
#include <torch/optim.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <rondo/torch/checkpoint.hpp>
#include <rondo/torch/values.hpp>

namespace rondo {

// The bits are those of the optimizer on one rank: parameters are dealt out whole, the largest first, each to the rank
// with the fewest bytes. Rejected: cutting them, which changes the bits of libtorch's vector kernels.
template <class Optimizer>
class ShardedOptimizer {
  static_assert(!std::is_same_v<Optimizer, torch::optim::LBFGS>,
                "LBFGS looks along one direction through all parameters, so no rank can step a share of them");

 public:
  // Collective. The communicator outlives this and is on the device of the parameters, which are the same on every
  // rank, as a wrapped module's are. Error(mismatch) on every rank when they are not, Error(unsupported) on every
  // rank for one that is not contiguous.
  template <class Settings>
  ShardedOptimizer(Communicator& communicator, std::vector<torch::optim::OptimizerParamGroup> groups,
                   const Settings& settings)
      : communicator_(communicator), groups_(parameters_of(groups)), owners_(deal_out()) {
    check_same();
    local_ = std::make_unique<Optimizer>(shares(groups), settings);
  }
  template <class Settings>
  ShardedOptimizer(Communicator& communicator, std::vector<torch::Tensor> parameters, const Settings& settings)
      : ShardedOptimizer(
            communicator,
            std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(std::move(parameters))},
            settings) {}

  // Collective: this rank's share of the step, and the values of all.
  void step() {
    local_->step();
    auto group = communicator_.group();
    for (std::size_t i = 0; i < owners_.size(); ++i) {
      const torch::Tensor& p = flat_[i];
      group.broadcast(p.data_ptr(), p.data_ptr(), p.nbytes(), DataType::u8, owners_[i]);
    }
    group.end();
    communicator_.synchronize();
  }
  // Of all parameters, not of this rank's share alone.
  void zero_grad(bool set_to_none = true) {
    for (torch::Tensor& p : flat_) {
      if (!p.grad().defined()) continue;
      if (set_to_none) {
        p.mutable_grad().reset();
      } else {
        p.mutable_grad().zero_();
      }
    }
  }

  // This rank's, with as many groups as were passed, some of them empty: for settings and schedulers, which are to be
  // the same on every rank.
  Optimizer& local() { return *local_; }
  const std::vector<std::vector<torch::Tensor>>& groups() const { return groups_; }  // all parameters

 private:
  static std::vector<std::vector<torch::Tensor>> parameters_of(
      const std::vector<torch::optim::OptimizerParamGroup>& groups) {
    std::vector<std::vector<torch::Tensor>> all;
    for (const auto& group : groups) all.push_back(group.params());
    return all;
  }
  std::vector<int> deal_out() {
    for (const auto& group : groups_) flat_.insert(flat_.end(), group.begin(), group.end());
    std::vector<std::size_t> order(flat_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return flat_[a].nbytes() > flat_[b].nbytes(); });
    std::vector<std::size_t> load(static_cast<std::size_t>(communicator_.world_size()));
    std::vector<int> owners(flat_.size());
    for (const std::size_t i : order) {
      const auto least = std::min_element(load.begin(), load.end());
      owners[i] = static_cast<int>(least - load.begin());
      *least += flat_[i].nbytes();
    }
    return owners;
  }
  void check_same() {
    std::vector<std::string> mine;
    detail::together(communicator_, [&] {
      for (const torch::Tensor& p : flat_) {
        detail::named_tensor("parameter " + std::to_string(mine.size()), p, communicator_);
        std::string one = detail::kind_of(p);
        for (const std::int64_t extent : p.sizes()) one += " " + std::to_string(extent);
        mine.push_back(std::move(one));
      }
    });
    const auto all = trainer::all_gather_value(communicator_, mine);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      throw Error(ErrorCode::mismatch,
                  "ShardedOptimizer: ranks 0 and " + std::to_string(rank) +
                      " have other parameters; pass the same ones in the same order on every rank",
                  static_cast<int>(rank));
    }
  }
  std::vector<torch::optim::OptimizerParamGroup> shares(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
    std::vector<torch::optim::OptimizerParamGroup> mine;
    std::size_t i = 0;
    for (const auto& group : groups) {
      std::vector<torch::Tensor> share;
      for (const torch::Tensor& p : group.params()) {
        if (owners_[i++] == communicator_.rank()) share.push_back(p);
      }
      mine.emplace_back(std::move(share), group.has_options() ? group.options().clone() : nullptr);
    }
    return mine;
  }

  Communicator& communicator_;
  std::vector<torch::Tensor> flat_;
  std::vector<std::vector<torch::Tensor>> groups_;
  std::vector<int> owners_;  // of flat_
  std::unique_ptr<Optimizer> local_;
};

// As rondo::save and rondo::load, whose files these are: what a world of any size wrote, sharded or not, another reads.
// Rank 0 gathers all of the state.
template <class Optimizer>
void save(Communicator& communicator, const std::string& path, const torch::nn::Module& module,
          ShardedOptimizer<Optimizer>& optimizer, const Extras& extras = {}) {
  trainer::Checkpoint whole;
  detail::together(communicator, [&] {
    if (communicator.rank() == 0) whole = detail::made_checkpoint(module, nullptr, extras);
    detail::OptimizerWriter(whole, detail::names_of(detail::tensors_of(module))).write(optimizer.local());
  });
  using Tensors = std::map<std::string, trainer::StoredTensor>;
  for (Tensors& part : trainer::gather_value(communicator, communicator.rank() == 0 ? Tensors() : whole.tensors, 0))
    whole.tensors.merge(part);
  trainer::save_once(communicator, path, whole);
}
template <class Optimizer>
Extras load(Communicator& communicator, const std::string& path, torch::nn::Module& module,
            ShardedOptimizer<Optimizer>& optimizer) {
  return detail::load_all(communicator, path, module, &optimizer.local(), &optimizer.groups());
}

}  // namespace rondo
