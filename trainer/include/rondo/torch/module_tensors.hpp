// SPDX-License-Identifier: Apache-2.0
// The tensors of a wrapped module: which are trained, which are only kept equal, and whether they still are what they
// were when it was wrapped.
#pragma once
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <rondo/torch/tensors.hpp>

namespace rondo::detail {

class ModuleTensors {
 public:
  ModuleTensors(std::shared_ptr<torch::nn::Module> module, const Communicator& communicator)
      : module_(std::move(module)) {
    if (!module_) torch_refuse("there is no module");
    for (const auto& item : module_->named_parameters())
      add(item.value().requires_grad() ? trained_ : frozen_, item, communicator);
    for (const auto& item : module_->named_buffers()) add(buffers_, item, communicator);
  }

  // Shared tensors count once, at their first name, which is the same on every rank.
  const std::vector<NamedTensor>& trained() const { return trained_; }
  const std::vector<NamedTensor>& frozen() const { return frozen_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

  // Error(invalid_argument) naming a tensor that is not what it was, was frozen, or was not there.
  void check() const {
    for (const auto* some : {&trained_, &frozen_, &buffers_}) {
      for (const NamedTensor& tensor : *some) check_kind(tensor);
    }
    for (const NamedTensor& tensor : frozen_) {
      if (tensor.value.requires_grad()) refuse_late("parameter", tensor.name);
    }
    for (const auto& item : module_->named_parameters()) {
      if (is_late(item.value())) refuse_late("parameter", item.key());
    }
    for (const auto& item : module_->named_buffers()) {
      if (is_late(item.value())) refuse_late("buffer", item.key());
    }
  }

  std::vector<trainer::Parameter> state() const {
    std::vector<trainer::Parameter> all;
    for (const auto* some : {&trained_, &frozen_, &buffers_}) {
      for (const NamedTensor& tensor : *some) all.push_back(buffer_of(tensor));
    }
    return all;
  }

  // Takes note of where tensors lie now; of those that became something else, it stays what and where they were.
  void follow() {
    for (auto* some : {&trained_, &frozen_, &buffers_}) {
      for (NamedTensor& tensor : *some) rondo::detail::follow(tensor);
    }
  }

 private:
  template <class Item>
  void add(std::vector<NamedTensor>& to, const Item& item, const Communicator& communicator) {
    if (!item.value().defined() || !known_.insert(item.value().unsafeGetTensorImpl()).second) return;
    to.push_back(named_tensor(item.key(), item.value(), communicator));
  }
  bool is_late(const torch::Tensor& tensor) const {
    return tensor.defined() && known_.count(tensor.unsafeGetTensorImpl()) == 0;
  }
  [[noreturn]] static void refuse_late(const char* what, const std::string& name) {
    torch_refuse(std::string(what) + " '" + name +
                 "' was added, or began to need a gradient, after the module was wrapped, so it is not kept equal on "
                 "the ranks; wrap the module when it is complete");
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<NamedTensor> trained_, frozen_, buffers_;
  std::unordered_set<const void*> known_;  // all of them; they are held, so that no other tensor gets their address
};

}  // namespace rondo::detail
