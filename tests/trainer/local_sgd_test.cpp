// SPDX-License-Identifier: Apache-2.0
// Post-local SGD against a simulation of all ranks in one thread.
#include <rondo/trainer/local_sgd.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include <rondo/trainer/gradient_synchronizer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/arrays.hpp"
#include "tests/trainer/toy_model.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::each_rank;
using rondo::test::expect;
using rondo::test::no_errors;
using rondo::test::run_over;
using rondo::test::sentences;
using rondo::trainer::GradientSynchronizer;
using rondo::trainer::ModelAverager;
using Model = rondo::test::ToyModel<double>;

constexpr int kRanks = 4;
constexpr int kSteps = 13;
constexpr double kRate = 0.1;

enum class Groups : std::uint8_t { pairs, nodes, none };

struct Case {
  std::string transport = "shm";
  Groups groups = Groups::pairs;
  std::size_t start_step = 3, period = 4;

  int group_of(int rank) const {
    if (groups == Groups::none) return rank;
    if (groups == Groups::nodes) return transport == "tcp" ? rank : 0;
    return rank % 2;
  }
};

std::size_t first_sample(int rank, int step) { return static_cast<std::size_t>(step * kRanks + rank) * 5; }

// Averages, over the ranks that are in `rank`'s group of this step, of what `part` says of a model.
template <class Part>
void average(std::vector<Model>& models, const std::function<bool(int, int)>& together, Part part) {
  const std::vector<Model> before = models;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (std::size_t t = 0; t < Model::kTensors; ++t) {
      auto& own = part(models[static_cast<std::size_t>(rank)])[t];
      std::fill(own.begin(), own.end(), 0.0);
      double count = 0;
      for (int other = 0; other < kRanks; ++other) {
        if (!together(rank, other)) continue;
        ++count;
        const auto& theirs = part(before[static_cast<std::size_t>(other)])[t];
        for (std::size_t i = 0; i < own.size(); ++i) own[i] += theirs[i];
      }
      for (double& value : own) value /= count;
    }
  }
}

std::vector<Model> simulate(const Case& one) {
  std::vector<Model> models(kRanks, Model(0));
  for (int step = 0; step < kSteps; ++step) {
    const auto number = static_cast<std::size_t>(step);
    for (int rank = 0; rank < kRanks; ++rank)
      models[static_cast<std::size_t>(rank)].backward(first_sample(rank, step), 5);
    const auto together = [&](int a, int b) { return number < one.start_step || one.group_of(a) == one.group_of(b); };
    average(
        models, together, [](auto& model) -> auto& { return model.gradient; });
    for (Model& model : models) {
      for (std::size_t t = 0; t < Model::kTensors; ++t) model.update(t, kRate);
    }
    if (number < one.start_step || (number - one.start_step) % one.period != 0) continue;
    average(
        models, [](int, int) { return true; }, [](auto& model) -> auto& { return model.values; });
  }
  return models;
}

std::vector<Model> train(const Case& one) {
  std::vector<Model> models;
  for (unsigned rank = 0; rank < kRanks; ++rank) models.emplace_back(rank);
  const auto errors = run_over(one.transport, kRanks, [&](Communicator& comm) {
    Model& model = models[static_cast<std::size_t>(comm.rank())];
    std::optional<Communicator> pair;
    if (one.groups == Groups::pairs) pair = comm.split(one.group_of(comm.rank()), comm.rank());
    const auto hook = rondo::trainer::post_local_sgd({.start_step = one.start_step,
                                                      .group = pair ? &*pair : nullptr,
                                                      .average_in_group = one.groups != Groups::none});
    GradientSynchronizer synchronizer(comm, model.parameters(),
                                      {.first_bucket_bytes = 64, .bucket_bytes = 128, .hook = hook});
    ModelAverager averager(comm, {.period = one.period, .start_step = one.start_step});
    for (int step = 0; step < kSteps; ++step) {
      model.backward(first_sample(comm.rank(), step), 5);
      for (std::size_t t = Model::kTensors; t-- > 0;) synchronizer.ready(t);
      synchronizer.finish();
      for (std::size_t t = 0; t < Model::kTensors; ++t) model.update(t, kRate);
      const auto after = static_cast<std::size_t>(step);
      expect(averager.after_step(synchronizer.parameters()) ==
                 (after >= one.start_step && (after - one.start_step) % one.period == 0),
             "when parameters are averaged");
    }
  });
  CHECK(sentences(errors) == no_errors(kRanks));
  return models;
}

double apart(const Model& a, const Model& b) {
  double most = 0;
  for (std::size_t t = 0; t < Model::kTensors; ++t) {
    for (std::size_t i = 0; i < a.values[t].size(); ++i)
      most = std::max(most, std::abs(a.values[t][i] - b.values[t][i]));
  }
  return most;
}

}  // namespace

TEST_CASE("post-local SGD: all together, then in groups with averages of parameters now and then") {
  for (const Case& one : {Case{}, Case{.groups = Groups::nodes}, Case{.groups = Groups::none},
                          Case{.transport = "tcp", .groups = Groups::nodes}, Case{.transport = "tcp"},
                          Case{.start_step = 0, .period = 5}, Case{.groups = Groups::none, .period = 100}}) {
    INFO(one.transport << " " << static_cast<int>(one.groups) << " " << one.start_step << " " << one.period);
    const std::vector<Model> expected = simulate(one);
    const std::vector<Model> got = train(one);
    for (std::size_t rank = 0; rank < kRanks; ++rank) CHECK(apart(got[rank], expected[rank]) < 1e-13);
    // Unless the last step made them equal, groups have gone their own ways.
    std::set<int> groups;
    for (int rank = 0; rank < kRanks; ++rank) groups.insert(one.group_of(rank));
    CHECK((apart(got[0], got[1]) > 1e-6) == (groups.size() > 1));
  }
}

TEST_CASE("post-local SGD: who used what, who has joined and who is in which step is known to all groups") {
  const auto errors = each_rank(4, [](Communicator& comm) {
    std::vector<double> a(3), b(3, 7.0), c(3, 9.0);
    GradientSynchronizer synchronizer(
        comm,
        {{"a", nullptr, a.data(), 3, rondo::DataType::f64, {}},
         {"b", nullptr, b.data(), 3, rondo::DataType::f64, {}},
         {"c", nullptr, c.data(), 3, rondo::DataType::f64, {}}},
        {.hook = rondo::trainer::post_local_sgd({.start_step = 1, .average_in_group = false})});
    const int steps = comm.rank() == 3 ? 2 : 4;
    for (int step = 0; step < steps; ++step) {
      a.assign(3, comm.rank() + 1.0);
      b.assign(3, comm.rank() == 2 ? 5.0 : 7.0);
      synchronizer.ready(0);
      if (comm.rank() == 2) synchronizer.ready(1);
      synchronizer.finish();
      expect(a[0] == (step == 0 ? 2.5 : comm.rank() + 1.0), "a");
      expect(b[0] == (step == 0 ? 1.25 : comm.rank() == 2 ? 5 : 0), "b is used by one rank: a gradient of all");
      expect(c[0] == 9, "c is nobody's");
      expect(synchronizer.unused_everywhere() == std::vector<std::size_t>{2}, "unused");
    }
    int joined = 0;
    synchronizer.join([&] { ++joined; });
    expect(joined == 4 - steps, "as many steps as others made");
    if (comm.rank() != 1) synchronizer.begin_forward(5);
    if (comm.rank() == 1) synchronizer.begin_forward(6);
    synchronizer.ready(0);
    synchronizer.finish();
  });
  for (const std::string& said : errors)
    CHECK_THAT(said,
               Catch::Contains("gradients of different steps have met: step 5 of ranks 0, 2, 3, step 6 of rank 1"));
}

TEST_CASE("post-local SGD: on a device too") {
  const auto errors = run_over("sim", 4, [](Communicator& comm) {
    rondo::Communicator pair = comm.split(comm.rank() / 2, comm.rank());
    GradientSynchronizer synchronizer(
        comm, {{"a", nullptr, nullptr, 100}},
        {.gradients_in_buckets = true, .hook = rondo::trainer::post_local_sgd({.start_step = 1, .group = &pair})});
    const rondo::test::BucketMemory place(comm, nullptr, synchronizer.parameters()[0].gradient);
    for (int step = 0; step < 3; ++step) {
      place.write(std::vector<float>(100, static_cast<float>(comm.rank())));
      synchronizer.ready(0);
      synchronizer.finish();
      const float expected = step == 0 ? 1.5F : static_cast<float>(comm.rank() / 2 * 2) + 0.5F;
      for (const float g : place.read<float>(100)) expect(g == expected, "average " + std::to_string(g));
    }
  });
  CHECK(sentences(errors) == no_errors(4));
}

TEST_CASE("a model averager: averages of every type, of two levels, and what it refuses") {
  const auto errors = each_rank(4, [](Communicator& comm) {
    rondo::Communicator pair = comm.split(comm.rank() / 2, comm.rank());
    ModelAverager within(pair, {.period = 2}), among(comm, {.period = 4});
    std::vector<double> a(5);
    std::vector<rondo::bfloat16> b(3);
    const std::vector<rondo::trainer::Parameter> parameters = {rondo::trainer::parameter("a", std::span(a)),
                                                               rondo::trainer::parameter("b", std::span(b))};
    for (int step = 0; step < 8; ++step) {
      a.assign(5, comm.rank());
      b.assign(3, rondo::bfloat16(static_cast<float>(comm.rank())));
      within.after_step(parameters);
      among.after_step(parameters);
      const double expected = step % 4 == 0 ? 1.5 : step % 2 == 0 ? comm.rank() / 2 * 2 + 0.5 : comm.rank();
      expect(a[4] == expected && static_cast<float>(b[2]) == static_cast<float>(expected), "average");
    }
    within.restore(3);
    expect(!within.after_step(parameters) && within.after_step(parameters) && within.steps() == 5, "restored");
    std::vector<int> whole(2);
    const std::vector<rondo::trainer::Parameter> wrong = {rondo::trainer::parameter("whole", std::span(whole))};
    within.after_step(wrong);
  });
  for (const std::string& said : errors) CHECK_THAT(said, Catch::Contains("ModelAverager: 'whole' is i32"));
  each_rank(1, [](Communicator& comm) { CHECK_THROWS_AS(ModelAverager(comm, {.period = 0}), rondo::Error); });
}

TEST_CASE("hooks of other kinds on the ranks are told when the synchronizer is made") {
  const auto errors = each_rank(2, [](Communicator& comm) {
    float gradient = 0;
    GradientSynchronizer synchronizer(
        comm, {{"a", nullptr, &gradient, 1}},
        {.hook = rondo::trainer::post_local_sgd({.start_step = static_cast<std::size_t>(comm.rank())})});
  });
  for (const std::string& said : errors) {
    CHECK_THAT(said, Catch::Contains("post_local_sgd from step 0 in nodes") && Catch::Contains("but rank 1 has") &&
                         Catch::Contains("post_local_sgd from step 1 in nodes"));
  }
}
