// SPDX-License-Identifier: Apache-2.0
// The state of libtorch's optimizers by the names of their parameters, under the keys of Python's
// get_optimizer_state_dict(..., flatten_optimizer_state_dict=True): state.<parameter>.exp_avg,
// param_groups.<parameter>.lr. Numbers are tensors of no dimension; a switch that is off is left out.
#pragma once
#include <torch/optim.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <rondo/torch/stored_tensors.hpp>

namespace rondo::detail {

// One per optimizer: its settings and what it keeps for a parameter, under Python's names. `state` says of each tensor
// whether a step needs it.
struct SgdFields {
  using Optimizer = torch::optim::SGD;
  using Settings = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr bool kFromTheStart = false;  // the state is made with the optimizer, not by the first step
  static constexpr bool kDecoupled = false;     // Python's name for what makes Adam AdamW
  template <class Visit>
  static void settings(Settings& s, Visit&& visit) {
    visit("lr", s.lr());
    visit("momentum", s.momentum());
    visit("dampening", s.dampening());
    visit("weight_decay", s.weight_decay());
    visit("nesterov", s.nesterov());
  }
  template <class Visit>
  static void state(State& s, const Settings&, Visit&& visit) {
    visit("momentum_buffer", s.momentum_buffer(), true);
  }
};

template <class OptimizerType, class SettingsType, class StateType, bool decoupled>
struct AdamFields {
  using Optimizer = OptimizerType;
  using Settings = SettingsType;
  using State = StateType;
  static constexpr bool kFromTheStart = false;
  static constexpr bool kDecoupled = decoupled;
  template <class Visit>
  static void settings(Settings& s, Visit&& visit) {
    visit("lr", s.lr());
    visit("betas", s.betas());
    visit("eps", s.eps());
    visit("weight_decay", s.weight_decay());
    visit("amsgrad", s.amsgrad());
  }
  template <class Visit>
  static void state(State& s, const Settings& settings, Visit&& visit) {
    visit("step", s.step(), true);
    visit("exp_avg", s.exp_avg(), true);
    visit("exp_avg_sq", s.exp_avg_sq(), true);
    visit("max_exp_avg_sq", s.max_exp_avg_sq(), settings.amsgrad());
  }
};

struct RmspropFields {
  using Optimizer = torch::optim::RMSprop;
  using Settings = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static constexpr bool kFromTheStart = false;
  static constexpr bool kDecoupled = false;
  template <class Visit>
  static void settings(Settings& s, Visit&& visit) {
    visit("lr", s.lr());
    visit("alpha", s.alpha());
    visit("eps", s.eps());
    visit("weight_decay", s.weight_decay());
    visit("momentum", s.momentum());
    visit("centered", s.centered());
  }
  template <class Visit>
  static void state(State& s, const Settings& settings, Visit&& visit) {
    visit("step", s.step(), true);
    visit("square_avg", s.square_avg(), true);
    visit("momentum_buffer", s.momentum_buffer(), settings.momentum() > 0);
    visit("grad_avg", s.grad_avg(), settings.centered());
  }
};

struct AdagradFields {
  using Optimizer = torch::optim::Adagrad;
  using Settings = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static constexpr bool kFromTheStart = true;
  static constexpr bool kDecoupled = false;
  template <class Visit>
  static void settings(Settings& s, Visit&& visit) {
    visit("lr", s.lr());
    visit("lr_decay", s.lr_decay());
    visit("weight_decay", s.weight_decay());
    visit("initial_accumulator_value", s.initial_accumulator_value());
    visit("eps", s.eps());
  }
  template <class Visit>
  static void state(State& s, const Settings&, Visit&& visit) {
    visit("step", s.step(), true);
    visit("sum", s.sum(), true);
  }
};

// Calls `with` with the fields of the optimizer. Error(unsupported) by its name: the state of others is not known.
template <class With>
void with_fields(const torch::optim::Optimizer& optimizer, With&& with) {
  namespace optim = torch::optim;
  const auto is = [&](auto fields) {
    if (dynamic_cast<const typename decltype(fields)::Optimizer*>(&optimizer) == nullptr) return false;
    with(fields);
    return true;
  };
  if (is(SgdFields{}) || is(AdamFields<optim::Adam, optim::AdamOptions, optim::AdamParamState, false>{}) ||
      is(AdamFields<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState, true>{}) || is(RmspropFields{}) ||
      is(AdagradFields{})) {
    return;
  }
  checkpoint_refuse("the state of " + c10::demangle(typeid(optimizer).name()) +
                        " cannot be kept; SGD, Adam, AdamW, RMSprop and Adagrad can",
                    ErrorCode::unsupported);
}

// libtorch's key of a parameter's state: a pointer, in 1.13 as text.
template <class Map = std::decay_t<decltype(std::declval<torch::optim::Optimizer&>().state())>>
typename Map::key_type state_key(const torch::Tensor& parameter) {
  if constexpr (std::is_pointer_v<typename Map::key_type>) {
    return parameter.unsafeGetTensorImpl();
  } else {
    std::ostringstream text;
    text << static_cast<const void*>(parameter.unsafeGetTensorImpl());
    return text.str();
  }
}

// The names of each tensor of a module, tied ones have several; in the module's order.
using NamesOf = std::map<const void*, std::vector<std::string>>;

constexpr const char* kOptimizerPrefix = "optimizer.";

inline const std::vector<std::string>& names_in_module(const NamesOf& names, const torch::Tensor& parameter,
                                                       std::size_t group, std::size_t place) {
  const auto found = names.find(parameter.unsafeGetTensorImpl());
  if (found != names.end()) return found->second;
  checkpoint_refuse("the optimizer's parameter " + std::to_string(place) + " of group " + std::to_string(group) +
                    " is none of the module");
}

// Numbers as tensors: Python's settings are doubles, its counts of steps floats.
inline torch::Tensor number_tensor(double value) { return torch::tensor(value, torch::kDouble); }
inline torch::Tensor number_tensor(const std::tuple<double, double>& value) {
  return torch::tensor({std::get<0>(value), std::get<1>(value)}, torch::kDouble);
}
inline torch::Tensor number_tensor(std::int64_t steps) {
  const torch::Tensor narrow = torch::tensor(static_cast<double>(steps), torch::kFloat);
  return static_cast<std::int64_t>(narrow.item<float>()) == steps ? narrow : number_tensor(static_cast<double>(steps));
}

class OptimizerWriter {
 public:
  OptimizerWriter(trainer::Checkpoint& checkpoint, const NamesOf& names) : checkpoint_(checkpoint), names_(names) {}

  // Reads the optimizer alone; libtorch's accessors are not const where the fields are visited.
  void write(torch::optim::Optimizer& optimizer) {
    with_fields(optimizer, [&](auto fields) { write(optimizer, fields); });
  }

 private:
  template <class Fields>
  void write(torch::optim::Optimizer& optimizer, Fields) {
    auto& groups = optimizer.param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      auto& settings = static_cast<typename Fields::Settings&>(groups[g].options());
      const auto& parameters = groups[g].params();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::string& name = names_in_module(names_, parameters[i], g, i).front();
        const std::string before = std::string(kOptimizerPrefix) + "param_groups." + name + ".";
        if (checkpoint_.tensors.count(before + "lr") != 0) continue;  // tied, and in the list twice
        Fields::settings(settings, [&](const char* field, auto& value) { setting(before + field, value); });
        if (Fields::kDecoupled) setting(before + "decoupled_weight_decay", true);
        const auto found = optimizer.state().find(state_key(parameters[i]));
        if (found == optimizer.state().end()) continue;
        const std::string key = std::string(kOptimizerPrefix) + "state." + name + ".";
        Fields::state(static_cast<typename Fields::State&>(*found->second), settings,
                      [&](const char* field, auto& value, bool) { keep(key + field, value); });
      }
    }
  }
  template <class Value>
  void setting(const std::string& key, const Value& value) {
    if constexpr (std::is_same_v<Value, bool>) {
      if (value) put(key, torch::tensor(true));
    } else {
      put(key, number_tensor(value));
    }
  }
  void keep(const std::string& key, std::int64_t steps) { put(key, number_tensor(steps)); }
  void keep(const std::string& key, const torch::Tensor& tensor) {
    if (tensor.defined()) put(key, tensor);
  }
  void put(const std::string& key, const torch::Tensor& tensor) { checkpoint_.put(key, stored(key, tensor)); }

  trainer::Checkpoint& checkpoint_;
  const NamesOf& names_;
};

// All parameters of each group, of which this rank's optimizer may have a share.
using ParameterGroups = std::vector<std::vector<torch::Tensor>>;

inline ParameterGroups groups_of(const torch::optim::Optimizer& optimizer) {
  ParameterGroups all;
  for (const auto& group : optimizer.param_groups()) all.push_back(group.params());
  return all;
}

class OptimizerReader {
 public:
  OptimizerReader(CheckpointReader& reader, const NamesOf& names) : reader_(reader), names_(names) {}

  void plan(torch::optim::Optimizer& optimizer, const ParameterGroups& all) {
    with_fields(optimizer, [&](auto fields) { plan(optimizer, fields, all); });
    refuse_others();
  }

 private:
  template <class Fields>
  void plan(torch::optim::Optimizer& optimizer, Fields fields, const ParameterGroups& all) {
    auto& groups = optimizer.param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& parameters = all.at(g);
      const auto& mine = groups[g].params();
      typename Fields::Settings settings = static_cast<const typename Fields::Settings&>(groups[g].options());
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::string name = kept_name(names_in_module(names_, parameters[i], g, i));
        typename Fields::Settings of_this = settings;
        read_settings(fields, of_this, name);
        if (i == 0) settings = of_this;
        check_equal(fields, settings, of_this, name);
        const bool kept_here =
            std::any_of(mine.begin(), mine.end(), [&](const torch::Tensor& p) { return p.is_same(parameters[i]); });
        if (kept_here) {
          plan_state(optimizer, fields, parameters[i], settings, name);
        } else {
          typename Fields::State elsewhere;
          Fields::state(elsewhere, settings,
                        [&](const char* field, auto&, bool) { find("state." + name + "." + field); });
        }
      }
      reader_.plan(
          [&group = groups[g], settings] { static_cast<typename Fields::Settings&>(group.options()) = settings; });
    }
  }

  // The one of its names under which the file has it. Every parameter has a learning rate.
  std::string kept_name(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (find("param_groups." + name + ".lr") != nullptr) return name;
    }
    checkpoint_refuse("the file has no optimizer's settings for '" + names.front() + "'");
  }

  template <class Fields>
  void read_settings(Fields, typename Fields::Settings& settings, const std::string& name) {
    const std::string before = "param_groups." + name + ".";
    Fields::settings(settings, [&](const char* field, auto& value) { read(before + field, value); });
    bool decoupled = false;
    read(before + "decoupled_weight_decay", decoupled);
    if (decoupled != Fields::kDecoupled) {
      checkpoint_refuse("the file's '" + name + "' was trained " +
                        (decoupled ? "by AdamW" : "by another optimizer than AdamW"));
    }
    // What Python's schedulers and kernels want to know, and has no effect on what a step does.
    for (const char* field : {"initial_lr", "foreach", "fused", "capturable", "differentiable"}) find(before + field);
  }

  // One group has one set of settings.
  template <class Fields>
  void check_equal(Fields, typename Fields::Settings& first, typename Fields::Settings& other,
                   const std::string& name) {
    const auto list = [](typename Fields::Settings& settings) {
      std::vector<double> all;
      Fields::settings(settings, [&](const char*, auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::tuple<double, double>>) {
          all.insert(all.end(), {std::get<0>(value), std::get<1>(value)});
        } else {
          all.push_back(static_cast<double>(value));
        }
      });
      return all;
    };
    if (list(first) != list(other)) {
      checkpoint_refuse("the file has other settings for '" + name + "' than for the first parameter of its group");
    }
  }

  template <class Fields>
  void plan_state(torch::optim::Optimizer& optimizer, Fields, const torch::Tensor& parameter,
                  const typename Fields::Settings& settings, const std::string& name) {
    auto state = std::make_shared<typename Fields::State>();
    const std::string before = "state." + name + ".";
    bool any = false;
    Fields::state(*state, settings, [&](const char* field, auto&, bool) { any |= find(before + field) != nullptr; });
    if (!any && Fields::kFromTheStart) checkpoint_refuse("the file has no optimizer's state of '" + name + "'");
    if (any) {
      Fields::state(*state, settings, [&](const char* field, auto& value, bool needed) {
        const auto* const from = find(before + field);
        if (from != nullptr) {
          restore(before + field, *from, value, parameter);
        } else if (needed) {
          checkpoint_refuse(missing(before + field));
        }
      });
    }
    reader_.plan([&optimizer, key = state_key(parameter), state, any] {
      if (any) {
        optimizer.state()[key] = std::make_unique<typename Fields::State>(*state);
      } else {
        optimizer.state().erase(key);
      }
    });
  }

  void restore(const std::string& key, const trainer::StoredTensor& from, std::int64_t& steps, const torch::Tensor&) {
    steps = restored(key, from).item<std::int64_t>();
  }
  void restore(const std::string& key, const trainer::StoredTensor& from, torch::Tensor& tensor,
               const torch::Tensor& parameter) {
    tensor = torch::empty_like(parameter);
    reader_.plan_copy(kOptimizerPrefix + key, from, tensor);
  }

  void read(const std::string& key, bool& value) {
    const auto* const from = find(key);
    value = from != nullptr && number(key, *from, 1).item<bool>();
  }
  void read(const std::string& key, double& value) { value = number(key, needed(key), 1).item<double>(); }
  void read(const std::string& key, std::tuple<double, double>& value) {
    const torch::Tensor both = number(key, needed(key), 2);
    value = {both[0].item<double>(), both[1].item<double>()};
  }
  const trainer::StoredTensor& needed(const std::string& key) {
    const auto* const from = find(key);
    if (from == nullptr) checkpoint_refuse(missing(key));
    return *from;
  }
  static torch::Tensor number(const std::string& key, const trainer::StoredTensor& from, std::int64_t count) {
    const torch::Tensor tensor = restored(kOptimizerPrefix + key, from);
    if (tensor.numel() == count) return tensor;
    checkpoint_refuse("'" + (kOptimizerPrefix + key) + "' has not " + std::to_string(count) + " elements");
  }

  const trainer::StoredTensor* find(const std::string& key) { return reader_.find(kOptimizerPrefix + key); }
  static std::string missing(const std::string& key) {
    return "the file has no tensor '" + (kOptimizerPrefix + key) + "'";
  }

  // Of another optimizer, or of parameters that this one has not. A switch of Python's that is off changes nothing.
  void refuse_others() {
    for (const auto& [key, tensor] : reader_.checkpoint().tensors) {
      if (key.compare(0, std::char_traits<char>::length(kOptimizerPrefix), kOptimizerPrefix) != 0 ||
          reader_.used(tensor))
        continue;
      const bool off = tensor.dtype == "BOOL" && tensor.bytes == std::vector<std::byte>(1);
      if (!off) checkpoint_refuse("the file has '" + key + "', for which this optimizer has no place");
    }
  }

  CheckpointReader& reader_;
  const NamesOf& names_;
};

}  // namespace rondo::detail
