// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/sharded_optimizer.hpp>

#include <cmath>
#include <optional>
#include <stdexcept>

#include <rondo/trainer/gradient_synchronizer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/toy_model.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::each_rank;
using rondo::test::expect;
using rondo::test::no_errors;
using rondo::trainer::Shard;
using rondo::trainer::ShardedOptimizer;
using Model = rondo::test::ToyModel<double>;

void adam(const Shard& shard, int step) {
  const auto values = shard.value_span<double>();
  const auto gradient = shard.gradient_span<double>();
  const auto mean = shard.state<double>(0), square = shard.state<double>(1);
  for (std::size_t i = 0; i < shard.count; ++i) {
    mean[i] = 0.9 * mean[i] + 0.1 * gradient[i];
    square[i] = 0.999 * square[i] + 0.001 * gradient[i] * gradient[i];
    values[i] -=
        0.01 * mean[i] / (1 - std::pow(0.9, step)) / (std::sqrt(square[i] / (1 - std::pow(0.999, step))) + 1e-8);
  }
}

constexpr int kSteps = 20;

// Every rank's values after training. The optimizer is shared among all ranks, or each has a whole one (the same class
// in a world of one); in the middle of the training one takes over the other's state.
std::vector<Model> train(int world_size, bool shared_first, bool shared_then) {
  std::vector<Model> models(static_cast<std::size_t>(world_size), Model(3));
  CHECK(each_rank(world_size, [&](Communicator& comm) {
          Model& model = models[static_cast<std::size_t>(comm.rank())];
          Communicator alone = comm.split(comm.rank(), 0);
          rondo::trainer::GradientSynchronizer synchronizer(comm, model.parameters(), {.bucket_bytes = 256});
          std::optional<ShardedOptimizer> optimizer;
          optimizer.emplace(shared_first ? comm : alone, model.parameters(), 2);
          for (int step = 0; step < kSteps; ++step) {
            if (step == kSteps / 2) {
              const auto mean = optimizer->gather_states(0), square = optimizer->gather_states(1);
              optimizer.emplace(shared_then ? comm : alone, model.parameters(), 2);
              optimizer->scatter_states(0, mean);
              optimizer->scatter_states(1, square);
            }
            model.backward(static_cast<std::size_t>(step * world_size + comm.rank()) * 4, 4);
            for (std::size_t t = 0; t < Model::kTensors; ++t) synchronizer.ready(t);
            synchronizer.finish();
            optimizer->step([&](const Shard& shard) { adam(shard, step + 1); });
          }
        }) == no_errors(world_size));
  return models;
}

}  // namespace

TEST_CASE("an optimizer in shares steps like a whole one, bit for bit, also when the state changes hands") {
  for (const int world_size : {1, 2, 3, 5, 8}) {
    const auto whole = train(world_size, false, false);
    for (const bool shared_then : {true, false}) {
      const auto shared = train(world_size, true, shared_then);
      bool same = true;
      for (const Model& model : shared) same &= model.values == whole[0].values;
      INFO(world_size << " ranks, then " << (shared_then ? "shared" : "whole"));
      CHECK(same);
    }
    CHECK(whole[0].values != Model(3).values);
  }
}

TEST_CASE("a rank keeps a share of the state") {
  CHECK(each_rank(5, [](Communicator& comm) {
          Model model(1);
          const ShardedOptimizer optimizer(comm, model.parameters(), 2);
          std::size_t elements = 0;
          for (const auto& p : model.parameters()) elements += p.count;
          expect(optimizer.state_bytes() <= (elements + 4) / 5 * 2 * sizeof(double), "more than a share");
        }) == no_errors(5));
}

TEST_CASE("parameters of several types, empty ones, and more ranks than elements") {
  CHECK(each_rank(4, [](Communicator& comm) {
          std::vector<float> few = {1, 2}, none, gradient = {1, 1};
          std::vector<double> wide(7, 1.0), wide_gradient(7, 2.0);
          ShardedOptimizer optimizer(comm,
                                     {rondo::trainer::parameter("few", std::span(few), std::span(gradient)),
                                      rondo::trainer::parameter("none", std::span(none), std::span(none)),
                                      rondo::trainer::parameter("wide", std::span(wide), std::span(wide_gradient))},
                                     0);
          optimizer.step([](const Shard& shard) {
            for (std::size_t i = 0; i < shard.count; ++i) {
              if (shard.dtype == rondo::DataType::f32) shard.value_span<float>()[i] -= shard.gradient_span<float>()[i];
              if (shard.dtype == rondo::DataType::f64)
                shard.value_span<double>()[i] -= shard.gradient_span<double>()[i];
            }
          });
          expect(few == std::vector<float>{0, 1} && wide == std::vector<double>(7, -1.0), "values");
        }) == no_errors(4));
}

TEST_CASE("parameters that moved are found, and those without a gradient keep values and state") {
  CHECK(each_rank(2, [](Communicator& comm) {
          std::vector<double> a(3, 1.0), b(5, 1.0), a_gradient(3, 1.0), b_gradient(5, 1.0), elsewhere(3, 10.0);
          std::vector<rondo::trainer::Parameter> now = {
              rondo::trainer::parameter("a", std::span(a), std::span(a_gradient)),
              rondo::trainer::parameter("b", std::span(b), std::span(b_gradient))};
          ShardedOptimizer optimizer(comm, now, 1);
          const auto update = [](const Shard& shard) {
            for (std::size_t i = 0; i < shard.count; ++i) {
              shard.state<double>(0)[i] += shard.gradient_span<double>()[i];
              shard.value_span<double>()[i] -= shard.state<double>(0)[i];
            }
          };
          optimizer.step(update);
          now[0].values = elsewhere.data();
          now[1].gradient = nullptr;
          optimizer.step(update, now);
          expect(a == std::vector<double>(3, 0.0) && elsewhere == std::vector<double>(3, 8.0), "the one that moved");
          expect(b == std::vector<double>(5, 0.0), "the one without a gradient");
          now[1].gradient = b_gradient.data();
          optimizer.step(update, now);
          expect(b == std::vector<double>(5, -2.0), "its state");
        }) == no_errors(2));
}

TEST_CASE("a sharded step with other parameters than those it was made for") {
  const auto refused = [](auto change) {
    return each_rank(1, [&](Communicator& comm) {
      std::vector<double> a(3, 1.0), gradient(3, 1.0);
      std::vector<rondo::trainer::Parameter> now = {rondo::trainer::parameter("a", std::span(a), std::span(gradient))};
      ShardedOptimizer optimizer(comm, now, 0);
      change(now);
      optimizer.step([](const Shard&) {}, now);
    })[0];
  };
  using rondo::test::contains;
  using Parameters = std::vector<rondo::trainer::Parameter>;
  CHECK(contains(refused([](Parameters& all) { all.clear(); }), "it was made for 1 parameters, and 0 were passed"));
  CHECK(contains(refused([](Parameters& all) { all[0].count = 2; }), "parameter 0 was 'a' and is 'a', or has another"));
  CHECK(contains(each_rank(1,
                           [](Communicator& comm) {
                             std::vector<double> a(3, 1.0);
                             ShardedOptimizer optimizer(comm, {rondo::trainer::parameter("a", std::span(a))}, 0);
                             optimizer.step([](const Shard&) {});
                           })[0],
                 "parameter 'a' came without a gradient; pass the parameters of this step too"));
}
