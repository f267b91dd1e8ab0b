// SPDX-License-Identifier: Apache-2.0
// Random ready orders and unused parameters that differ from rank to rank and from step to step, from a seed. Used
// gradients are integers times the world size, so that every average is known exactly.
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <stdexcept>

#include "tests/support/catch.hpp"
#include "tests/trainer/arrays.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::no_errors;
using rondo::trainer::GradientSynchronizer;
using rondo::trainer::Parameter;

constexpr int kSteps = 4;

struct Case {
  unsigned seed;
  std::string transport;
  int world_size;
  bool in_buckets;
  std::vector<std::size_t> counts;
  std::size_t bucket_bytes;

  explicit Case(unsigned from) : seed(from) {
    std::mt19937 engine(seed);
    const auto draw = [&](unsigned limit) { return static_cast<unsigned>(engine()) % limit; };
    transport = std::array{"shm", "shm", "tcp", "sim"}[draw(4)];
    world_size = 1 + static_cast<int>(draw(8));
    in_buckets = draw(2) == 0;
    bucket_bytes = 8U << draw(6);
    for (unsigned i = 1 + draw(9); i > 0; --i) counts.push_back(draw(4) == 0 ? draw(200) : draw(12));
  }
  bool uses(int rank, std::size_t p, int step) const {
    std::mt19937 engine(seed * 7919U + static_cast<unsigned>(rank) * 131U + static_cast<unsigned>(step));
    engine.discard(p);
    return engine() % 3 != 0;
  }
  int element(int rank, std::size_t p, std::size_t i, int step) const {
    return static_cast<int>((p * 31 + i * 7 + static_cast<std::size_t>(step * 3 + rank * 5)) % 101) - 50;
  }
  bool used_by_any(std::size_t p, int step) const {
    for (int r = 0; r < world_size; ++r) {
      if (uses(r, p, step)) return true;
    }
    return false;
  }
  float average(std::size_t p, std::size_t i, int step) const {
    int sum = 0;
    for (int r = 0; r < world_size; ++r) sum += uses(r, p, step) ? element(r, p, i, step) : 0;
    return static_cast<float>(sum);
  }
};

// Every third parameter is double. What nobody used still holds what was there before the step.
class Rank {
 public:
  Rank(Communicator& comm, const Case& test) : comm_(comm), test_(test) {
    if (!rondo::test::on_host(comm.device())) stream_ = rondo::DeviceStream(comm.device());
    std::vector<Parameter> parameters;
    for (std::size_t p = 0; p < test.counts.size(); ++p) {
      memory_.emplace_back(comm.device(), test.counts[p] * sizeof(double));
      parameters.push_back({std::string("p").append(std::to_string(p)),
                            nullptr,
                            test.in_buckets ? nullptr : memory_.back().data(),
                            test.counts[p],
                            is_double(p) ? rondo::DataType::f64 : rondo::DataType::f32,
                            {}});
    }
    synchronizer_.emplace(comm, parameters,
                          rondo::trainer::SynchronizerOptions{.first_bucket_bytes = test.bucket_bytes,
                                                              .bucket_bytes = test.bucket_bytes * 2,
                                                              .stream = stream_.get(),
                                                              .gradients_in_buckets = test.in_buckets});
  }

  void step(int step) {
    std::vector<std::size_t> order(test_.counts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(),
                 std::mt19937(test_.seed + static_cast<unsigned>(comm_.rank() * 97 + step)));
    for (const std::size_t p : order) {
      const bool used = test_.uses(comm_.rank(), p, step);
      std::vector<double> values(test_.counts[p], static_cast<double>(before(p, step)));
      for (std::size_t i = 0; used && i < values.size(); ++i)
        values[i] = test_.world_size * test_.element(comm_.rank(), p, i, step);
      write(p, values);
      if (used) synchronizer_->ready(p);
    }
    synchronizer_->finish();
    check(step);
  }

 private:
  static bool is_double(std::size_t p) { return p % 3 == 2; }
  float before(std::size_t p, int step) const {
    return 1000.5F + static_cast<float>(p) + static_cast<float>(step + comm_.rank() * 10);
  }
  rondo::test::BucketMemory place(std::size_t p) const {
    return {comm_, stream_.get(), synchronizer_->parameters()[p].gradient};
  }
  void write(std::size_t p, const std::vector<double>& values) const {
    if (is_double(p)) return place(p).write(values);
    place(p).write(std::vector<float>(values.begin(), values.end()));
  }
  std::vector<double> read(std::size_t p) const {
    if (is_double(p)) return place(p).read<double>(test_.counts[p]);
    const auto values = place(p).read<float>(test_.counts[p]);
    return {values.begin(), values.end()};
  }
  void check(int step) const {
    std::vector<std::size_t> here, everywhere;
    for (std::size_t p = 0; p < test_.counts.size(); ++p) {
      if (!test_.uses(comm_.rank(), p, step)) here.push_back(p);
      if (!test_.used_by_any(p, step)) everywhere.push_back(p);
      const std::vector<double> values = read(p);
      for (std::size_t i = 0; i < test_.counts[p]; ++i) {
        const float expected = test_.used_by_any(p, step) ? test_.average(p, i, step) : before(p, step);
        if (values[i] != static_cast<double>(expected))
          throw std::runtime_error("parameter " + std::to_string(p) + " is wrong");
      }
    }
    if (synchronizer_->unused_here() != here || synchronizer_->unused_everywhere() != everywhere)
      throw std::runtime_error("wrong names");
  }

  Communicator& comm_;
  const Case& test_;
  rondo::DeviceStream stream_;
  std::vector<rondo::test::Memory> memory_;
  std::optional<GradientSynchronizer> synchronizer_;
};

void run(unsigned seed) {
  const Case test(seed);
  const auto errors =
      rondo::test::sentences(rondo::test::run_over(test.transport, test.world_size, [&](Communicator& comm) {
        Rank rank(comm, test);
        for (int step = 0; step < kSteps; ++step) rank.step(step);
      }));
  INFO("seed " << seed << ", " << test.world_size << " ranks over " << test.transport << ", gradients "
               << (test.in_buckets ? "in" : "outside") << " buckets");
  CHECK(errors == no_errors(test.world_size));
}

}  // namespace

TEST_CASE("any ready order and any unused parameters give the averages of what was used") {
  for (unsigned seed = 0; seed < 48; ++seed) run(seed);
}

TEST_CASE("any ready order and any unused parameters: a thousand seeds", "[.full]") {
  for (unsigned seed = 0; seed < 1000; ++seed) run(seed);
}
