// SPDX-License-Identifier: Apache-2.0
// ZeRO stage 1: each rank keeps the optimizer's state of its share of the parameters alone, updates that share, and
// sends the values to the others. In the memory of the CPU.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <rondo/trainer/parameter.hpp>

namespace rondo::trainer {

// Elements [first, first + count) of a parameter, and their state: `states` arrays of `count` elements of the
// parameter's dtype, zero at first, this rank's alone.
struct Shard {
  std::size_t parameter = 0;         // its index
  std::size_t first = 0;             // element of the parameter
  std::size_t count = 0;             // elements
  DataType dtype = DataType::f32;    // the parameter's
  void* values = nullptr;            // of the first element
  const void* gradient = nullptr;    // of the first element; null: none in this step
  std::vector<std::byte*> states{};  // each of `count` elements

  // The same as spans; T is the dtype's C++ type.
  template <class T>
  std::span<T> value_span() const {
    return {static_cast<T*>(values), count};
  }
  template <class T>
  std::span<const T> gradient_span() const {
    return {static_cast<const T*>(gradient), count};
  }
  template <class T>
  std::span<T> state(std::size_t index) const {
    return {reinterpret_cast<T*>(states[index]), count};
  }
};

// One rank's part of the optimizer. One thread at a time; the communicator outlives it.
class RONDO_API ShardedOptimizer {
 public:
  // Collective. Every rank gets elements of nearly equal number of each dtype, whatever the sizes of the parameters.
  // `states_per_element`: SGD with momentum 1, Adam 2.
  ShardedOptimizer(Communicator& communicator, std::vector<Parameter> parameters, std::size_t states_per_element);
  ~ShardedOptimizer();

  // Collective, after finish(): `update` changes values of each of this rank's shards, then all ranks get all values.
  // `now`: the same parameters as they are now (averaged() of the synchronizer, parameters() of a libtorch module), in
  // other memory perhaps; one with a null gradient is left as it is. Without it: as they were at the construction.
  // Error(invalid_argument) where these are not the same parameters, or out of the CPU's reach.
  void step(const std::function<void(const Shard&)>& update, std::span<const Parameter> now);
  void step(const std::function<void(const Shard&)>& update);
  const std::vector<Shard>& shards() const;  // this rank's
  std::size_t state_bytes() const;           // of this rank
  // Collective: the states of all ranks put together, as tensors named "<parameter>.state<i>", on every rank; and back
  // from there, whatever the world size was.
  std::vector<std::vector<std::byte>> gather_states(std::size_t index);  // by parameter
  void scatter_states(std::size_t index, const std::vector<std::vector<std::byte>>& full);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::trainer
