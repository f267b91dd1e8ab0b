// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/sharded_optimizer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "trainer/arguments.hpp"
#include "trainer/host_memory.hpp"

namespace rondo::trainer {
namespace {

// All elements of one type, one parameter behind the other, cut into as many equal parts as there are ranks.
struct Flat {
  DataType dtype = DataType::f32;
  std::size_t part = 0;        // elements of a rank; the last ranks' may be fewer
  Window<std::byte> memory{};  // world_size parts
};

struct Stretch {  // of a parameter, which lies in one rank's part
  std::size_t rank, parameter, first, count, offset;
};

std::vector<Stretch> cut(const std::vector<Parameter>& parameters, DataType dtype, std::size_t part) {
  std::vector<Stretch> all;
  std::size_t at = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].dtype != dtype) continue;
    for (std::size_t first = 0; first < parameters[p].count;) {
      const std::size_t count = std::min(parameters[p].count - first, part - at % part);
      all.push_back({at / part, p, first, count, at});
      first += count;
      at += count;
    }
  }
  return all;
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "ShardedOptimizer: " + why);
}

void check_reach(const Parameter& p, const void* array, const char* what) {
  if (host_can_reach(array, p.count * size_of(p.dtype))) return;
  refuse(fmt::format("the {} of '{}' are not in the memory of the CPU", what, p.name));
}

// Where a shard of its parameter begins, in whole parameters.
template <class Full>
auto* place(Full& full, const Shard& s) {
  return full[s.parameter].data() + s.first * size_of(s.dtype);
}

}  // namespace

class ShardedOptimizer::Impl {
 public:
  Impl(Communicator& communicator, std::vector<Parameter> parameters, std::size_t states)
      : communicator_(communicator), parameters_(std::move(parameters)), states_(states) {
    if (communicator_.device().kind != Device::Kind::cpu) refuse("parameters have to be in the memory of the CPU");
    check_parameters("ShardedOptimizer", parameters_);
    for (const Parameter& p : parameters_) check_reach(p, p.values, "values");
    constexpr std::size_t kMostStates = 1024;  // far more than any optimizer has; a negative number is larger
    if (states_ > kMostStates)
      refuse(fmt::format("{} states of each element: 0 to {} are possible", states_, kMostStates));
    for (int type = 0; type < kDataTypeCount; ++type) add(static_cast<DataType>(type));
    make_shards();
  }

  void step(const std::function<void(const Shard&)>& update) {
    for (const Parameter& p : parameters_) {
      if (p.gradient == nullptr && p.count != 0)
        refuse(fmt::format("parameter '{}' came without a gradient; pass the parameters of this step too", p.name));
    }
    step(update, std::vector<Parameter>(parameters_));
  }
  void step(const std::function<void(const Shard&)>& update, std::span<const Parameter> now) {
    if (!update) refuse("step: there is no function that updates a shard");
    follow(now);
    for (Shard& shard : shards_) {
      const Parameter& p = parameters_[shard.parameter];
      const std::size_t begin = shard.first * size_of(p.dtype);
      shard.values = static_cast<std::byte*>(p.values) + begin;
      shard.gradient = p.gradient == nullptr ? nullptr : static_cast<const std::byte*>(p.gradient) + begin;
      if (shard.gradient != nullptr) update(shard);
    }
    exchange([&](const Stretch& s) { return static_cast<std::byte*>(parameters_[s.parameter].values); });
  }
  // `base`: where the whole parameter lies. Each rank's stretches are sent from there, the others' come there.
  template <class Base>
  void exchange(Base base) {
    for (std::size_t f = 0; f < flats_.size(); ++f) {
      Flat& flat = flats_[f];
      const std::size_t size = size_of(flat.dtype);
      const std::size_t part = flat.part * size;
      const auto each = [&](bool mine, auto&& copy) {
        for (const Stretch& s : stretches_[f]) {
          if ((s.rank == me()) == mine)
            copy(flat.memory.data() + s.offset * size, base(s) + s.first * size, s.count * size);
        }
      };
      each(true, [](std::byte* packed, const std::byte* here, std::size_t n) { std::memcpy(packed, here, n); });
      communicator_.all_gather(flat.memory.data() + me() * part, flat.memory.data(), part, DataType::u8);
      each(false, [](const std::byte* packed, std::byte* here, std::size_t n) { std::memcpy(here, packed, n); });
    }
  }

  std::vector<std::vector<std::byte>> gather_states(std::size_t index) {
    check_state(index);
    std::vector<std::vector<std::byte>> full;
    for (const Parameter& p : parameters_) full.emplace_back(p.count * size_of(p.dtype));
    for (const Shard& s : shards_) std::memcpy(place(full, s), s.states.at(index), s.count * size_of(s.dtype));
    exchange([&](const Stretch& s) { return full[s.parameter].data(); });
    return full;
  }
  void scatter_states(std::size_t index, const std::vector<std::vector<std::byte>>& full) {
    check_state(index);
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      if (p >= full.size() || full[p].size() != parameters_[p].count * size_of(parameters_[p].dtype)) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("ShardedOptimizer: the state of '{}' is missing or has another size", parameters_[p].name));
      }
    }
    for (const Shard& s : shards_) std::memcpy(s.states.at(index), place(full, s), s.count * size_of(s.dtype));
  }

  std::vector<Shard> shards_;
  std::vector<std::vector<std::byte>> memory_;  // of the states

 private:
  void check_state(std::size_t index) const {  // on every rank, also on one that has no shard
    if (index >= states_) refuse(fmt::format("there is no state {}: each element has {}", index, states_));
  }
  std::size_t me() const { return static_cast<std::size_t>(communicator_.rank()); }

  void add(DataType dtype) {
    std::size_t count = 0;
    for (const Parameter& p : parameters_) count += p.dtype == dtype ? p.count : 0;
    if (count == 0) return;
    const auto world = static_cast<std::size_t>(communicator_.world_size());
    const std::size_t part = (count + world - 1) / world;
    flats_.push_back({dtype, part, communicator_.allocate<std::byte>(part * world * size_of(dtype))});
    stretches_.push_back(cut(parameters_, dtype, part));
  }
  void follow(std::span<const Parameter> now) {
    if (now.size() != parameters_.size()) {
      refuse(fmt::format("it was made for {} parameters, and {} were passed", parameters_.size(), now.size()));
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      const Parameter& p = now[i];
      if (p.name != parameters_[i].name || p.count != parameters_[i].count || p.dtype != parameters_[i].dtype)
        refuse(fmt::format("parameter {} was '{}' and is '{}', or has another size or type", i, parameters_[i].name,
                           p.name));
      check_reach(p, p.values, "values");
      if (p.gradient != nullptr) check_reach(p, p.gradient, "gradients");
    }
    parameters_.assign(now.begin(), now.end());
  }
  void make_shards() {
    for (std::size_t f = 0; f < flats_.size(); ++f) {
      for (const Stretch& s : stretches_[f]) {
        if (s.rank != me()) continue;
        const Parameter& p = parameters_[s.parameter];
        const std::size_t size = size_of(p.dtype);
        Shard shard{s.parameter, s.first, s.count, p.dtype, static_cast<std::byte*>(p.values) + s.first * size};
        for (std::size_t i = 0; i < states_; ++i) shard.states.push_back(memory_.emplace_back(s.count * size).data());
        shards_.push_back(std::move(shard));
      }
    }
  }

  Communicator& communicator_;
  std::vector<Parameter> parameters_;
  std::size_t states_;
  std::vector<Flat> flats_;
  std::vector<std::vector<Stretch>> stretches_;
};

ShardedOptimizer::ShardedOptimizer(Communicator& communicator, std::vector<Parameter> parameters,
                                   std::size_t states_per_element)
    : impl_(std::make_unique<Impl>(communicator, std::move(parameters), states_per_element)) {}
ShardedOptimizer::~ShardedOptimizer() = default;
void ShardedOptimizer::step(const std::function<void(const Shard&)>& update) { impl_->step(update); }
void ShardedOptimizer::step(const std::function<void(const Shard&)>& update, std::span<const Parameter> now) {
  impl_->step(update, now);
}
const std::vector<Shard>& ShardedOptimizer::shards() const { return impl_->shards_; }
std::size_t ShardedOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto& memory : impl_->memory_) bytes += memory.size();
  return bytes;
}
std::vector<std::vector<std::byte>> ShardedOptimizer::gather_states(std::size_t index) {
  return impl_->gather_states(index);
}
void ShardedOptimizer::scatter_states(std::size_t index, const std::vector<std::vector<std::byte>>& full) {
  impl_->scatter_states(index, full);
}

}  // namespace rondo::trainer
