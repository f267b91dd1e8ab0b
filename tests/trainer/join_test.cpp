// SPDX-License-Identifier: Apache-2.0
// Uneven numbers of batches, several batches to a step, and state that is not trained.
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <stdexcept>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/toy_model.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::each_rank;
using rondo::test::expect;
using rondo::test::no_errors;
using rondo::trainer::GradientSynchronizer;
using Model = rondo::test::ToyModel<double>;

void ready_all(GradientSynchronizer& synchronizer) {
  for (std::size_t t = synchronizer.parameters().size(); t-- > 0;) synchronizer.ready(t);
}

}  // namespace

TEST_CASE("ranks with fewer batches join: averages count them as zeros, replicas stay equal, epochs follow") {
  for (const bool in_buckets : {false, true}) {
    const auto errors = each_rank(3, [&](Communicator& comm) {
      double value = 0, outside = 0;
      GradientSynchronizer synchronizer(comm,
                                        {{"p", &value, in_buckets ? nullptr : &outside, 1, rondo::DataType::f64, {}}},
                                        {.gradients_in_buckets = in_buckets});
      for (int epoch = 0; epoch < 3; ++epoch) {
        double& gradient = synchronizer.gradient<double>(0)[0];
        const int batches = (comm.rank() + epoch) % 3 * 2;  // 0, 2 and 4
        for (int batch = 0; batch < batches; ++batch) {
          gradient = 3;
          synchronizer.ready(0);
          synchronizer.finish();
          value += gradient;
        }
        gradient = -7;
        int joined = 0;
        synchronizer.join([&] {
          value += gradient;
          ++joined;
          gradient = -7;
        });
        expect(joined == 4 - batches, "as many steps as others made");
        expect(synchronizer.gradient<double>(0)[0] == -7, "the last round touched a gradient");
        // Two ranks train for two steps, one for two more.
        expect(value == (epoch + 1) * (2 * 2 + 2 * 1), "value " + std::to_string(value));
      }
      expect(synchronizer.statistics().steps == 12, "steps");
    });
    CHECK(errors == no_errors(3));
  }
}

TEST_CASE("under no_sync gradients add up and nothing travels; a parameter used there alone counts as used") {
  for (const bool in_buckets : {false, true}) {
    const auto errors = each_rank(2, [&](Communicator& comm) {
      std::array<double, 2> outside{};
      std::vector<rondo::trainer::Parameter> parameters;
      for (std::size_t i = 0; i < 2; ++i)
        parameters.push_back(
            {i == 0 ? "often" : "once", nullptr, in_buckets ? nullptr : &outside[i], 1, rondo::DataType::f64, {}});
      GradientSynchronizer synchronizer(comm, parameters, {.gradients_in_buckets = in_buckets});
      for (int round = 0; round < 3; ++round) {
        double& often = synchronizer.gradient<double>(0)[0];
        double& once = synchronizer.gradient<double>(1)[0];
        often = once = 0;
        {
          const auto pause = synchronizer.no_sync();
          for (int batch = 0; batch < 3; ++batch) {
            often += comm.rank() + 1;
            synchronizer.ready(0);
            if (batch == 1) {
              once += 8 * comm.rank();
              synchronizer.ready(1);
            }
            synchronizer.finish();
            expect(often == (batch + 1) * (comm.rank() + 1), "reduced under no_sync");
          }
        }
        often += comm.rank() + 1;
        synchronizer.ready(0);
        synchronizer.finish();
        expect(often == 6 && once == 4, "not the averages");
        expect(synchronizer.unused_here().empty(), "used before");
      }
      expect(synchronizer.statistics().steps == 3, "steps");
    });
    CHECK(errors == no_errors(2));
  }
}

TEST_CASE("several batches to a step train like the large batch") {
  Model alone(1);
  for (std::size_t step = 0; step < 20; ++step) {
    alone.backward(step * 16, 16);
    for (std::size_t t = 0; t < Model::kTensors; ++t) alone.update(t, 0.1);
  }
  const auto errors = each_rank(2, [&](Communicator& comm) {
    Model model(1);
    std::array<std::vector<double>, Model::kTensors> sums;
    auto parameters = model.parameters();
    for (std::size_t t = 0; t < Model::kTensors; ++t) {
      sums[t].resize(model.gradient[t].size());
      parameters[t].gradient = sums[t].data();
    }
    GradientSynchronizer synchronizer(comm, parameters);
    const auto add = [&](std::size_t batch) {
      model.backward(batch * 4, 4);
      for (std::size_t t = 0; t < Model::kTensors; ++t)
        for (std::size_t i = 0; i < sums[t].size(); ++i) sums[t][i] += model.gradient[t][i] / 2;
      ready_all(synchronizer);
      synchronizer.finish();
    };
    for (std::size_t step = 0; step < 20; ++step) {
      for (auto& s : sums) s.assign(s.size(), 0);
      const std::size_t first = step * 4 + static_cast<std::size_t>(comm.rank()) * 2;
      {
        const auto pause = synchronizer.no_sync();
        add(first);
      }
      add(first + 1);
      model.gradient = sums;
      for (std::size_t t = 0; t < Model::kTensors; ++t) model.update(t, 0.1);
    }
    for (std::size_t t = 0; t < Model::kTensors; ++t)
      for (std::size_t i = 0; i < sums[t].size(); ++i)
        expect(std::abs(model.values[t][i] - alone.values[t][i]) < 1e-13, "another model");
  });
  CHECK(errors == no_errors(2));
}

TEST_CASE("buffers come from rank 0 at the start, and at each step from the lowest rank that still trains") {
  const auto errors = each_rank(3, [](Communicator& comm) {
    double gradient = 0;
    std::vector<float> mean(5, static_cast<float>(comm.rank() + 1));
    std::vector<float> elsewhere(5);
    std::int64_t count = 10 + comm.rank();
    rondo::trainer::SynchronizerOptions options;
    options.buffers = {{"mean", mean.data(), nullptr, 5, rondo::DataType::f32, {}},
                       {"count", &count, nullptr, 1, rondo::DataType::i64, {}}};
    GradientSynchronizer synchronizer(comm, {{"p", nullptr, &gradient, 1, rondo::DataType::f64, {}}}, options);
    expect(mean[4] == 1 && count == 10, "not rank 0's at the start");
    for (int step = 0; step < 2 * comm.rank(); ++step) {  // rank 0 has no batch, rank 1 two, rank 2 four
      if (step == 1) std::swap(mean, elsewhere), synchronizer.move_buffer(0, mean.data());
      mean.assign(5, static_cast<float>(100 * comm.rank() + step));
      count = 1000 * comm.rank() + step;
      synchronizer.ready(0);
      synchronizer.finish();
      const int source = step < 2 ? 1 : 2;
      expect(mean[4] == static_cast<float>(100 * source + step) && count == 1000 * source + step, "not the source's");
    }
    if (comm.rank() == 0) std::swap(mean, elsewhere), synchronizer.move_buffer(0, mean.data());
    synchronizer.join([] {});
    expect(mean[0] == 203 && count == 2003, "not the last one's");
  });
  CHECK(errors == no_errors(3));
}
