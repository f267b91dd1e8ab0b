// SPDX-License-Identifier: Apache-2.0
// Training on several ranks is training on one with the batches joined: for every world size and transport.
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <algorithm>
#include <deque>
#include <random>

#include "tests/support/catch.hpp"
#include "tests/trainer/arrays.hpp"
#include "tests/trainer/toy_model.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::trainer::GradientSynchronizer;

constexpr int kSteps = 200;
constexpr std::size_t kBatch = 4;  // of a rank
constexpr unsigned kSeed = 11;

template <class T>
using Model = rondo::test::ToyModel<T>;

std::size_t sample(int step, int rank, int world_size) {
  return static_cast<std::size_t>(step * world_size + rank) * kBatch;
}

// Which tensors are there for a rank's batch of a step; now and then some are there for nobody's.
enum class Used { all, some };
using Tensors = Model<double>::Tensors;

Tensors tensors_of(Used used, int step, int rank) {
  std::mt19937 engine(static_cast<unsigned>(step * 64 + rank));
  Tensors tensors;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    tensors[t] = used == Used::all || (engine() % 3 != 0 && (static_cast<std::size_t>(step) + t) % 7 != 0);
  return tensors;
}

template <class T>
Model<T> alone(int world_size, Used used, T rate) {
  Model<T> model(kSeed);
  const auto ranks = static_cast<std::size_t>(world_size);
  for (int step = 0; step < kSteps; ++step) {
    Tensors by_anybody;
    model.backward(sample(step, 0, world_size), kBatch * ranks, [&](std::size_t s) {
      const Tensors tensors = tensors_of(used, step, static_cast<int>(s / kBatch % ranks));
      by_anybody |= tensors;
      return tensors;
    });
    for (std::size_t t = 0; t < Model<T>::kTensors; ++t) {
      if (by_anybody[t]) model.update(t, rate);
    }
  }
  return model;
}

// A model's arrays in the memory of a device; on the CPU the model's own.
template <class T>
class Copies {
 public:
  Copies(Communicator& comm, Model<T>& model) : comm_(comm), model_(model), parameters_(model.parameters()) {
    if (rondo::test::on_host(comm.device())) return;
    stream_ = rondo::DeviceStream(comm.device());
    for (auto& p : parameters_) {
      memory_.emplace_back(comm.device(), p.count * sizeof(T));
      copy(memory_.back().data(), p.values, p.count);
      p.values = memory_.back().data();
      memory_.emplace_back(comm.device(), p.count * sizeof(T));
      p.gradient = memory_.back().data();
    }
  }
  const std::vector<rondo::trainer::Parameter>& parameters() const { return parameters_; }
  rondo::Stream stream() const { return stream_.get(); }
  void values_from_device() {
    for (std::size_t t = 0; t < parameters_.size(); ++t)
      copy(model_.values[t].data(), parameters_[t].values, parameters_[t].count);
  }
  void gradient_to_device(std::size_t t) {
    copy(parameters_[t].gradient, model_.gradient[t].data(), parameters_[t].count);
  }
  void gradients_from_device() {
    for (std::size_t t = 0; t < parameters_.size(); ++t)
      copy(model_.gradient[t].data(), parameters_[t].gradient, parameters_[t].count);
  }

 private:
  void copy(void* to, const void* from, std::size_t count) {
    if (to == from) return;
    rondo::copy_on(comm_.device(), stream(), to, from, count * sizeof(T));
    comm_.synchronize(stream());
  }

  Communicator& comm_;
  Model<T>& model_;
  rondo::DeviceStream stream_;
  std::deque<rondo::test::Memory> memory_;
  std::vector<rondo::trainer::Parameter> parameters_;
};

constexpr int kStale = 1000;  // what the gradient of an unused tensor still holds

// Rank r starts from seed + r: only the broadcast makes the replicas equal.
template <class T>
Model<T> together(Communicator& comm, Used used, T rate) {
  Model<T> model(kSeed + static_cast<unsigned>(comm.rank()));
  Copies<T> copies(comm, model);
  GradientSynchronizer synchronizer(comm, copies.parameters(),
                                    {.first_bucket_bytes = 64, .bucket_bytes = 300, .stream = copies.stream()});
  copies.values_from_device();
  std::mt19937 engine(static_cast<unsigned>(comm.rank()));
  std::array<std::size_t, Model<T>::kTensors> order = {0, 1, 2, 3};
  for (int step = 0; step < kSteps; ++step) {
    const Tensors here = tensors_of(used, step, comm.rank());
    model.backward(sample(step, comm.rank(), comm.world_size()), kBatch, [&](std::size_t) { return here; });
    std::shuffle(order.begin(), order.end(), engine);
    for (const std::size_t t : order) {
      if (!here[t]) model.gradient[t].assign(model.gradient[t].size(), T(kStale));
      copies.gradient_to_device(t);
      if (here[t]) synchronizer.ready(t);
    }
    synchronizer.finish();
    copies.gradients_from_device();
    Tensors unused;
    for (const std::size_t t : synchronizer.unused_everywhere()) unused.set(t);
    for (std::size_t t = 0; t < Model<T>::kTensors; ++t) {
      if (!unused[t]) model.update(t, rate);
    }
  }
  return model;
}

// Norm of the difference, relative to the norm.
template <class T>
double distance(const Model<T>& a, const Model<T>& b) {
  double difference = 0, norm = 0;
  for (std::size_t t = 0; t < Model<T>::kTensors; ++t) {
    for (std::size_t i = 0; i < a.values[t].size(); ++i) {
      const auto x = static_cast<double>(a.values[t][i]), y = static_cast<double>(b.values[t][i]);
      difference += (x - y) * (x - y);
      norm += y * y;
    }
  }
  return std::sqrt(difference / norm);
}

template <class T>
void compare(const std::string& transport, int world_size, Used used, double tolerance) {
  const Model<T> expected = alone<T>(world_size, used, T(0.05));
  std::vector<std::optional<Model<T>>> models(static_cast<std::size_t>(world_size));
  const auto errors = rondo::test::run_over(transport, world_size, [&](Communicator& comm) {
    models[static_cast<std::size_t>(comm.rank())] = together<T>(comm, used, T(0.05));
  });
  INFO(transport << ", " << world_size << " ranks, " << (used == Used::all ? "all" : "some") << " tensors used");
  REQUIRE(rondo::test::sentences(errors) == rondo::test::no_errors(world_size));
  CHECK(distance(*models[0], expected) <= tolerance);
  CHECK(models[0]->loss(100) < 0.8 * Model<T>(kSeed).loss(100));
  for (const auto& model : models) CHECK(model->values == models[0]->values);
}

void compare(const std::string& transport, int world_size, Used used) {
  compare<double>(transport, world_size, used, 1e-12);
  compare<float>(transport, world_size, used, 1e-5);
}

}  // namespace

TEST_CASE("200 steps of several ranks are those of one process on the joined batch") {
  for (const int world_size : {1, 2, 3, 5}) compare("shm", world_size, Used::all);
  compare<double>("shm", 8, Used::all, 1e-12);
  for (const int world_size : {2, 3}) compare("tcp", world_size, Used::all);
  for (const int world_size : {2, 3}) compare<float>("sim", world_size, Used::all, 1e-5);
  compare<double>("sim", 4, Used::all, 1e-12);
}

TEST_CASE("200 steps in which each rank uses other tensors are those of one process") {
  for (const int world_size : {1, 3}) compare("shm", world_size, Used::some);
  compare<float>("tcp", 2, Used::some, 1e-5);
  compare<double>("sim", 2, Used::some, 1e-12);
}

TEST_CASE("200 steps of one to eight ranks over every transport are those of one process", "[.full]") {
  for (const std::string transport : {"shm", "tcp", "sim"}) {
    for (int world_size = 1; world_size <= 8; ++world_size) {
      for (const Used used : {Used::all, Used::some}) compare(transport, world_size, used);
    }
  }
}
