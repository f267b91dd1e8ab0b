// SPDX-License-Identifier: Apache-2.0
// The tensors of a wrapped module: which are trained, which are only kept equal, which are each rank's own, and whether
// they still are what they were when it was wrapped.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <rondo/torch/tensors.hpp>

namespace rondo::detail {

class ModuleTensors {
 public:
  ModuleTensors(std::shared_ptr<torch::nn::Module> module, const Communicator& communicator,
                const std::vector<std::string>& ignored)
      : module_(std::move(module)), communicator_(communicator) {
    if (!module_) torch_refuse("there is no module");
    ignore(ignored);
    for (const auto& item : module_->named_parameters()) add(item.value().requires_grad() ? trained_ : frozen_, item);
    for (const auto& item : module_->named_buffers()) add(buffers_, item);
  }

  // Shared tensors count once, at their first name, which is the same on every rank.
  const std::vector<NamedTensor>& trained() const { return trained_; }
  const std::vector<NamedTensor>& frozen() const { return frozen_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

  // Of the tensors that are kept equal but not averaged, and the names of those that are not, in one text each.
  std::vector<std::string> description() const {
    std::vector<std::string> all;
    for (const NamedTensor& tensor : frozen_) {
      std::string one = "frozen '" + tensor.name + "', " + kind_of(tensor.value);
      for (const std::int64_t extent : tensor.value.sizes()) one += " " + std::to_string(extent);
      all.push_back(std::move(one));
    }
    for (const std::string& name : ignored_) all.push_back("ignored '" + name + "'");
    return all;
  }

  // Error(invalid_argument) naming a tensor that is not what it was, was frozen, or was not there.
  void check() const {
    for (const auto* some : {&trained_, &frozen_, &buffers_}) {
      for (const NamedTensor& tensor : *some) check_kind(tensor);
    }
    for (const NamedTensor& tensor : frozen_) {
      if (tensor.value.requires_grad()) refuse_late("parameter", tensor.name);
    }
    for (const auto& item : module_->named_parameters()) {
      if (is_late(item)) refuse_late("parameter", item.key());
    }
    for (const auto& item : module_->named_buffers()) {
      if (is_late(item)) refuse_late("buffer", item.key());
    }
  }

  std::vector<trainer::Parameter> kept_equal() const {
    std::vector<trainer::Parameter> all;
    for (const auto* some : {&trained_, &frozen_, &buffers_}) {
      for (const NamedTensor& tensor : *some) all.push_back(buffer_of(tensor));
    }
    return all;
  }
  // Error(invalid_argument) where an ignored tensor is what no other could be: on another device, not contiguous.
  std::vector<trainer::Parameter> state() const {
    std::vector<trainer::Parameter> all = kept_equal();
    std::unordered_set<const void*> seen;
    visit_ignored([&](const auto& item) {
      if (seen.insert(item.value().unsafeGetTensorImpl()).second)
        all.push_back(buffer_of(named_tensor(item.key(), item.value(), communicator_)));
    });
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
  void add(std::vector<NamedTensor>& to, const Item& item) {
    if (!item.value().defined() || ignored_.count(item.key()) != 0) return;
    visit_ignored([&](const auto& other) {
      if (!other.value().is_same(item.value())) return;
      torch_refuse("'" + item.key() + "' is the same tensor as '" + other.key() +
                   "', which is to be ignored; ignore all of its names or none");
    });
    if (known_.insert(item.value().unsafeGetTensorImpl()).second)
      to.push_back(named_tensor(item.key(), item.value(), communicator_));
  }
  void ignore(const std::vector<std::string>& names) {
    ignored_.insert(names.begin(), names.end());
    std::set<std::string> missing = ignored_;
    visit_ignored([&](const auto& item) { missing.erase(item.key()); });
    if (missing.empty()) return;
    torch_refuse("'" + *missing.begin() + "' is to be ignored, but no parameter or buffer has that name");
  }
  template <class Visit>
  void visit_ignored(Visit visit) const {
    if (ignored_.empty()) return;
    for (const auto& items : {module_->named_parameters(), module_->named_buffers()}) {
      for (const auto& item : items) {
        if (item.value().defined() && ignored_.count(item.key()) != 0) visit(item);
      }
    }
  }
  template <class Item>
  bool is_late(const Item& item) const {
    return item.value().defined() && known_.count(item.value().unsafeGetTensorImpl()) == 0 &&
           ignored_.count(item.key()) == 0;
  }
  [[noreturn]] static void refuse_late(const char* what, const std::string& name) {
    torch_refuse(std::string(what) + " '" + name +
                 "' was added, or began to need a gradient, after the module was wrapped, so it is not kept equal on "
                 "the ranks; wrap the module when it is complete");
  }

  std::shared_ptr<torch::nn::Module> module_;
  const Communicator& communicator_;
  std::vector<NamedTensor> trained_, frozen_, buffers_;
  std::set<std::string> ignored_;          // names; what they stand for is each rank's own, whatever becomes of it
  std::unordered_set<const void*> known_;  // all of them; they are held, so that no other tensor gets their address
};

}  // namespace rondo::detail
