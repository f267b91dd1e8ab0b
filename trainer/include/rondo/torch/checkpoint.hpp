// SPDX-License-Identifier: Apache-2.0
// A training's state in one file: rondo::save and rondo::load for libtorch. The file is a safetensors file. Its tensors
// are those of Python's state_dict() under the same names; beside them optimizer.state.<parameter>.<what>,
// optimizer.param_groups.<parameter>.<setting> and extra.<name>.
//
//   rondo::save(communicator, "net.safetensors", *model, optimizer, {.texts = {{"epoch", "3"}}});
//   const rondo::Extras extras = rondo::load(communicator, "net.safetensors", *model, optimizer);
#pragma once
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rondo/torch/optimizer_state.hpp>
#include <rondo/torch/stored_tensors.hpp>

namespace rondo {

// What else a training needs to go on.
struct Extras {
  std::map<std::string, std::string> texts{};      // "epoch": "3"; the format's metadata
  std::map<std::string, torch::Tensor> tensors{};  // a generator's state, a loss scale; read back onto the CPU
};

namespace detail {

constexpr const char* kExtraPrefix = "extra.";

inline bool has_prefix(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// Parameters, frozen ones too, and buffers; tied tensors once, with all of their names.
struct ModuleTensor {
  torch::Tensor tensor{};
  std::vector<std::string> names{};
};
inline std::vector<ModuleTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<ModuleTensor> all;
  std::map<const void*, std::size_t> seen;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.defined()) return;
    for (const char* const prefix : {kOptimizerPrefix, kExtraPrefix}) {
      if (has_prefix(name, prefix))
        checkpoint_refuse("the module's '" + name + "' would lie among the tensors that begin with " + prefix);
    }
    const auto [place, fresh] = seen.emplace(tensor.unsafeGetTensorImpl(), all.size());
    if (fresh) all.push_back({tensor, {}});
    all[place->second].names.push_back(name);
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return all;
}
inline NamesOf names_of(const std::vector<ModuleTensor>& tensors) {
  NamesOf names;
  for (const ModuleTensor& t : tensors) names[t.tensor.unsafeGetTensorImpl()] = t.names;
  return names;
}

// As safetensors.torch.save_model does it: under the first name of the alphabet, the others are noted in the texts.
inline void put_module(trainer::Checkpoint& checkpoint, const std::vector<ModuleTensor>& tensors) {
  for (const ModuleTensor& t : tensors) {
    const std::string& kept = *std::min_element(t.names.begin(), t.names.end());
    checkpoint.put(kept, stored(kept, t.tensor));
    for (const std::string& name : t.names) {
      if (name == kept) continue;
      if (!checkpoint.texts.emplace(name, kept).second)
        checkpoint_refuse("the text '" + name + "' has the name of a tied tensor; choose another");
    }
  }
}

inline trainer::Checkpoint made_checkpoint(const torch::nn::Module& module, torch::optim::Optimizer* optimizer,
                                           const Extras& extras) {
  trainer::Checkpoint checkpoint;
  checkpoint.texts = extras.texts;
  const auto tensors = tensors_of(module);
  put_module(checkpoint, tensors);
  const NamesOf names = names_of(tensors);
  if (optimizer != nullptr) OptimizerWriter(checkpoint, names).write(*optimizer);
  for (const auto& [name, tensor] : extras.tensors) checkpoint.put(kExtraPrefix + name, stored(name, tensor));
  return checkpoint;
}

inline void plan_module(CheckpointReader& reader, const std::vector<ModuleTensor>& tensors) {
  for (const ModuleTensor& t : tensors) {
    const trainer::StoredTensor* from = nullptr;
    for (const std::string& name : t.names) {
      const trainer::StoredTensor* const one = reader.find(name);
      if (from != nullptr && one != nullptr && !(*from == *one))
        checkpoint_refuse("'" + name + "' is tied to '" + t.names.front() + "' here, but differs from it in the file");
      if (one != nullptr) from = one;
    }
    if (from == nullptr) checkpoint_refuse("the file has no tensor '" + t.names.front() + "'");
    reader.plan_copy(t.names.front(), *from, t.tensor);
  }
  for (const auto& [key, tensor] : reader.checkpoint().tensors) {
    if (!reader.used(tensor) && !has_prefix(key, kOptimizerPrefix) && !has_prefix(key, kExtraPrefix))
      checkpoint_refuse("the file has a tensor '" + key + "', but the module has none");
  }
}

inline Extras extras_of(const trainer::Checkpoint& checkpoint, const std::vector<ModuleTensor>& tensors) {
  Extras extras;
  extras.texts = checkpoint.texts;
  for (const ModuleTensor& t : tensors) {
    for (const std::string& name : t.names) extras.texts.erase(name);
  }
  const std::string prefix = kExtraPrefix;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    if (has_prefix(key, prefix)) extras.tensors[key.substr(prefix.size())] = restored(key, tensor);
  }
  return extras;
}

// Collective: what `work` throws on one rank is thrown on all, so that none goes on alone.
template <class Work>
void together(Communicator& communicator, Work&& work) {
  std::exception_ptr failure;
  std::string mine;  // the error's code and its sentence
  const auto tell = [&](ErrorCode code, const char* sentence) {
    failure = std::current_exception();
    mine = std::string(1, static_cast<char>(code)) + sentence;
  };
  try {
    work();
  } catch (const Error& error) {
    tell(error.error_code(), error.what());
  } catch (const std::exception& error) {
    tell(ErrorCode::system, error.what());
  }
  const auto all = communicator.all_gather_bytes(std::as_bytes(std::span(mine)));
  if (failure) std::rethrow_exception(failure);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::string told(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
    throw Error(static_cast<ErrorCode>(told[0]), "rank " + std::to_string(rank) + ": " + told.substr(1),
                static_cast<int>(rank));
  }
}

inline void save_all(Communicator& communicator, const std::string& path, const torch::nn::Module& module,
                     torch::optim::Optimizer* optimizer, const Extras& extras) {
  trainer::Checkpoint checkpoint;
  together(communicator, [&] {
    if (communicator.rank() == 0) checkpoint = made_checkpoint(module, optimizer, extras);
  });
  trainer::save_once(communicator, path, checkpoint);
}

// `groups`: all parameters where the optimizer has a share; null: it has all.
inline Extras load_all(Communicator& communicator, const std::string& path, torch::nn::Module& module,
                       torch::optim::Optimizer* optimizer, const ParameterGroups* groups = nullptr) {
  const trainer::Checkpoint checkpoint = trainer::load(communicator, path);
  CheckpointReader reader(checkpoint);
  Extras extras;
  together(communicator, [&] {
    const auto tensors = tensors_of(module);
    const NamesOf names = names_of(tensors);
    plan_module(reader, tensors);
    if (optimizer != nullptr) {
      OptimizerReader(reader, names).plan(*optimizer, groups == nullptr ? groups_of(*optimizer) : *groups);
    }
    extras = extras_of(checkpoint, tensors);
  });
  reader.apply();
  return extras;
}

}  // namespace detail

// Collective: rank 0 writes its module, optimizer and extras, and all return when the whole file is there. A crash at
// any moment leaves the old or the new file. A wrapped module is passed as *model. Memory on a GPU is copied to the
// host. Every rank gets the same error, within the communicator's timeout: Error(unsupported) for an optimizer other
// than SGD, Adam, AdamW, RMSprop and Adagrad and for a tensor that the format cannot hold, Error(system) when it cannot
// be written.
inline void save(Communicator& communicator, const std::string& path, const torch::nn::Module& module,
                 torch::optim::Optimizer& optimizer, const Extras& extras = {}) {
  detail::save_all(communicator, path, module, &optimizer, extras);
}
inline void save(Communicator& communicator, const std::string& path, const torch::nn::Module& module,
                 const Extras& extras = {}) {
  detail::save_all(communicator, path, module, nullptr, extras);
}

// Collective: rank 0 reads, every rank gets the same bits, copied into the tensors that the module has, so a wrapped
// one stays wrapped. The file is this header's, or Python's, where `module.` before all names does not matter. Settings
// of the optimizer, its learning rate too, are the file's. Either every rank changes all or none does:
// Error(invalid_argument) naming the tensor that is missing, left over or different, Error(system),
// Error(corrupt_message).
inline Extras load(Communicator& communicator, const std::string& path, torch::nn::Module& module,
                   torch::optim::Optimizer& optimizer) {
  return detail::load_all(communicator, path, module, &optimizer);
}
// Without the optimizer's part, where the file has one.
inline Extras load(Communicator& communicator, const std::string& path, torch::nn::Module& module) {
  return detail::load_all(communicator, path, module, nullptr);
}

}  // namespace rondo
