// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <random>

#include "tests/support/catch.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::each_rank;
using rondo::test::no_errors;
using rondo::trainer::GradientSynchronizer;
using rondo::trainer::Parameter;
using Options = rondo::trainer::SynchronizerOptions;

const Options kSmallBuckets{.first_bucket_bytes = 64, .bucket_bytes = 256};
const std::vector<std::size_t> kCounts = {3, 200, 1, 0, 64, 17, 300, 5, 40};

// Parameters of several floats and doubles. Gradients are integers, multiples of the world size: the average is exact.
struct Model {
  std::vector<std::vector<float>> values, gradients;
  std::vector<double> wide = std::vector<double>(50);

  Model() {
    for (const std::size_t count : kCounts) {
      values.emplace_back(count, -1.0F);
      gradients.emplace_back(count);
    }
  }
  std::vector<Parameter> parameters() {
    std::vector<Parameter> all;
    for (std::size_t i = 0; i < values.size(); ++i) {
      all.push_back(rondo::trainer::parameter(std::string("p").append(std::to_string(i)), std::span(values[i]),
                                              std::span(gradients[i])));
    }
    all.push_back({"wide", nullptr, wide.data(), wide.size(), rondo::DataType::f64});
    return all;
  }
  static int element(std::size_t parameter, std::size_t i, int step) {
    return static_cast<int>((parameter * 31 + i * 7 + static_cast<std::size_t>(step) * 3) % 101) - 50;
  }
  void compute(std::size_t p, int rank, int step) {
    if (p == gradients.size()) {
      for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = element(p, i, step) * (rank + 1) * 2;
      return;
    }
    for (std::size_t i = 0; i < gradients[p].size(); ++i) {
      gradients[p][i] = static_cast<float>(element(p, i, step) * (rank + 1) * 2);
    }
  }
  // The average of (rank + 1) * 2 is world_size + 1.
  bool is_average(int world_size, int step) const {
    bool good = true;
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      for (std::size_t i = 0; i < gradients[p].size(); ++i) {
        good &= gradients[p][i] == static_cast<float>(element(p, i, step) * (world_size + 1));
      }
    }
    for (std::size_t i = 0; i < wide.size(); ++i)
      good &= wide[i] == element(gradients.size(), i, step) * (world_size + 1);
    return good;
  }
};

void check_all_say(const std::vector<std::string>& errors, const std::vector<std::string>& parts) {
  for (const std::string& error : errors) {
    INFO("error: " << error);
    CHECK(error == errors[0]);
    for (const std::string& part : parts) {
      INFO("missing: " << part);
      CHECK(error.find(part) != std::string::npos);
    }
  }
}

}  // namespace

TEST_CASE("gradients are averaged, whatever order each rank has them ready in") {
  for (const int world_size : {1, 2, 3, 4}) {
    std::atomic<int> wrong = 0;
    const auto errors = each_rank(world_size, [&](Communicator& comm) {
      Model model;
      GradientSynchronizer synchronizer(comm, model.parameters(), kSmallBuckets);
      std::mt19937 engine(static_cast<unsigned>(comm.rank()) + 1);
      std::vector<std::size_t> order(kCounts.size() + 1);
      std::iota(order.begin(), order.end(), std::size_t{0});
      for (int step = 0; step < 20; ++step) {
        std::shuffle(order.begin(), order.end(), engine);
        for (const std::size_t p : order) {
          model.compute(p, comm.rank(), step);
          synchronizer.ready(p);
        }
        synchronizer.finish();
        wrong += !model.is_average(world_size, step);
      }
    });
    CHECK(errors == no_errors(world_size));
    CHECK(wrong == 0);
  }
}

TEST_CASE("several threads of a rank may say ready at once") {
  std::atomic<int> wrong = 0;
  const auto errors = each_rank(2, [&](Communicator& comm) {
    Model model;
    GradientSynchronizer synchronizer(comm, model.parameters(), kSmallBuckets);
    for (int step = 0; step < 10; ++step) {
      std::vector<std::jthread> threads;
      for (std::size_t first = 0; first < 3; ++first) {
        threads.emplace_back([&, first] {
          for (std::size_t p = first; p <= kCounts.size(); p += 3) {
            model.compute(p, comm.rank(), step);
            synchronizer.ready(p);
          }
        });
      }
      threads.clear();
      synchronizer.finish();
      wrong += !model.is_average(2, step);
    }
  });
  CHECK(errors == no_errors(2));
  CHECK(wrong == 0);
}

TEST_CASE("rank 0's parameters are everybody's first ones, unless that is switched off") {
  for (const bool broadcast : {true, false}) {
    std::atomic<int> rank_0s = 0;
    const auto errors = each_rank(3, [&](Communicator& comm) {
      Model model;
      for (auto& values : model.values) std::fill(values.begin(), values.end(), static_cast<float>(comm.rank() + 5));
      Options options = kSmallBuckets;
      options.broadcast_parameters = broadcast;
      const GradientSynchronizer synchronizer(comm, model.parameters(), options);
      bool same = true;
      for (const auto& values : model.values) {
        same &= std::all_of(values.begin(), values.end(), [](float v) { return v == 5.0F; });
      }
      rank_0s += same;
    });
    CHECK(errors == no_errors(3));
    CHECK(rank_0s == (broadcast ? 3 : 1));
  }
}

TEST_CASE("a full bucket is reduced while other gradients are still missing") {
  std::atomic<int> overlapped = 0;
  const auto errors = each_rank(2, [&](Communicator& comm) {
    std::vector<float> early(8, 1.0F), late(8, 1.0F);
    std::vector<Parameter> parameters = {{"late", nullptr, late.data(), 8}, {"early", nullptr, early.data(), 8}};
    GradientSynchronizer synchronizer(comm, parameters, {.first_bucket_bytes = 32, .bucket_bytes = 32});
    synchronizer.ready(1);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (synchronizer.progress().reduced == 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    const auto progress = synchronizer.progress();
    overlapped += progress.reduced == 1 && progress.started == 1 && progress.ready == 1 && progress.buckets == 2;
    synchronizer.ready(0);
    synchronizer.finish();
  });
  CHECK(errors == no_errors(2));
  CHECK(overlapped == 2);
}

TEST_CASE("ranks with different models all get the error that names the parameter and two ranks") {
  const auto run = [](const std::function<void(Model&, std::vector<Parameter>&, Options&)>& change) {
    return each_rank(3, [&](Communicator& comm) {
      Model model;
      std::vector<Parameter> parameters = model.parameters();
      Options options = kSmallBuckets;
      if (comm.rank() == 2) change(model, parameters, options);
      const GradientSynchronizer synchronizer(comm, parameters, options);
    });
  };
  check_all_say(run([](Model&, auto& p, Options&) { p[4].name = "other"; }), {"'p4'", "'other'", "rank 0", "rank 2"});
  check_all_say(run([](Model&, auto& p, Options&) { p[1].count = 199; }), {"'p1'", "200", "199", "rank 0", "rank 2"});
  check_all_say(run([](Model&, auto& p, Options&) { p[1].dtype = rondo::DataType::bf16; }), {"'p1'", "bf16", "f32"});
  check_all_say(run([](Model&, auto& p, Options&) { p.pop_back(); }), {"'wide'", "nothing more", "rank 2"});
  check_all_say(run([](Model&, auto& p, Options&) { std::swap(p[4], p[5]); }), {"'p4'", "'p5'"});
  check_all_say(run([](Model&, auto& p, Options&) { p[0].values = nullptr; }), {"'p0'", "without values"});
  check_all_say(run([](Model&, auto& p, Options&) {
                  p[1].shape = {20, 10};
                }),
                {"'p1'", "[20, 10]", "rank 0", "rank 2"});
  check_all_say(run([](Model&, auto& p, Options&) { p.pop_back(); }), {"'wide'", "nothing more", "rank 0", "rank 2"});
  check_all_say(run([](Model& m, auto&, Options& o) {
                  o.buffers.push_back({"mean", m.wide.data(), nullptr, 2, rondo::DataType::f64, {}});
                }),
                {"'mean'", "nothing more", "rank 0", "rank 2"});
  check_all_say(run([](Model&, auto&, Options& o) { o.bucket_bytes = 512; }), {"256", "512", "rank 2"});
}

TEST_CASE("a gradient that is ready twice is named, and the step can still be finished") {
  std::atomic<int> good = 0;
  const auto errors = each_rank(2, [&](Communicator& comm) {
    Model model;
    GradientSynchronizer synchronizer(comm, model.parameters(), kSmallBuckets);
    const auto error_of = [](auto&& call) -> std::string {
      try {
        call();
      } catch (const rondo::Error& error) {
        return error.error_code() == rondo::ErrorCode::invalid_argument ? error.what() : "";
      }
      return "";
    };
    for (std::size_t p = 0; p <= kCounts.size(); ++p) {
      model.compute(p, comm.rank(), 0);
      synchronizer.ready(p);
    }
    const std::string twice = error_of([&] { synchronizer.ready(5); });
    const std::string unknown = error_of([&] { synchronizer.ready(99); });
    synchronizer.finish();
    const std::string me = std::string("rank ").append(std::to_string(comm.rank()));
    good += twice.find("'p5'") != std::string::npos && twice.find(me) != std::string::npos &&
            unknown.find("99") != std::string::npos && model.is_average(2, 0);
  });
  CHECK(errors == no_errors(2));
  CHECK(good == 2);
}

TEST_CASE("what cannot be a gradient is refused by name") {
  const auto errors = each_rank(1, [](Communicator& comm) {
    std::vector<int> counter(3);
    const GradientSynchronizer synchronizer(comm, {{"counter", nullptr, counter.data(), 3, rondo::DataType::i32}});
  });
  CHECK(errors[0].find("'counter' is i32") != std::string::npos);
}

TEST_CASE("a rank that gives up ends the others' step with an error") {
  const auto errors = each_rank(2, [](Communicator& comm) {
    std::vector<float> gradient(100, 1.0F);
    GradientSynchronizer synchronizer(comm, {{"p", nullptr, gradient.data(), 100}});
    if (comm.rank() == 1) {
      comm.abort();
      throw std::runtime_error("gave up");
    }
    synchronizer.ready(0);
    synchronizer.finish();
  });
  CHECK_FALSE(errors[0].empty());
  CHECK(errors[1] == "gave up");
}
