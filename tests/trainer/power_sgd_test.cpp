// SPDX-License-Identifier: Apache-2.0
// PowerSGD against plain averages, where it is to be exact, and against the paper's formulas written down for one
// matrix.
#include <rondo/trainer/power_sgd.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include <rondo/trainer/gradient_synchronizer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/worlds.hpp"
#include "trainer/normal.hpp"

namespace {

using rondo::Communicator;
using rondo::DataType;
using rondo::test::each_rank;
using rondo::test::expect;
using rondo::test::no_errors;
using rondo::test::run_over;
using rondo::test::sentences;
using rondo::trainer::GradientSynchronizer;
using rondo::trainer::power_sgd;
using rondo::trainer::PowerSgdOptions;
using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

// Of a gradient of this rank and step, as a matrix of full rank; between -1 and 1.
double element(int rank, int step, std::size_t i) {
  std::mt19937 engine(static_cast<std::uint32_t>(i + static_cast<std::size_t>(1000 * rank + 100'000 * step)));
  return std::ldexp(static_cast<double>(engine()), -31) - 1;
}

// One f64 parameter of rows x columns; what finish() made of the gradients that `of(step)` gives.
std::vector<Vector> train(Communicator& comm, std::size_t rows, std::size_t columns, const PowerSgdOptions& options,
                          int steps, const std::function<double(int step, std::size_t i)>& of) {
  Vector gradient(rows * columns);
  GradientSynchronizer synchronizer(
      comm, {{"m", nullptr, gradient.data(), gradient.size(), DataType::f64, std::vector{rows, columns}}},
      {.hook = power_sgd(options)});
  std::vector<Vector> all;
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = of(step, i);
    synchronizer.ready(0);
    synchronizer.finish();
    all.push_back(gradient);
  }
  return all;
}

double apart(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// The formulas, with vectors as columns and ranks one after the other.
class Reference {
 public:
  Reference(std::size_t rows, std::size_t columns, const PowerSgdOptions& options, int ranks)
      : rows_(rows),
        columns_(columns),
        options_(options),
        errors_(static_cast<std::size_t>(ranks), Vector(rows * columns)),
        seeds_(options.random_seed) {}

  // gradients by rank; the result is everybody's.
  Vector step(std::vector<Vector> gradients) {
    if (++steps_ <= options_.start_step) return mean(gradients);
    for (std::size_t r = 0; r < gradients.size() && options_.use_error_feedback; ++r) {
      for (std::size_t i = 0; i < gradients[r].size(); ++i) gradients[r][i] += errors_[r][i];
    }
    if (q_.empty() || !options_.warm_start) q_ = first_factor();
    orthonormalize(q_);
    const Vector average = mean(gradients);
    Matrix p(q_.size(), Vector(rows_));
    for (std::size_t c = 0; c < p.size(); ++c) {
      for (std::size_t i = 0; i < rows_; ++i) {
        for (std::size_t j = 0; j < columns_; ++j) p[c][i] += average[i * columns_ + j] * q_[c][j];
      }
    }
    orthonormalize(p);
    Vector result(rows_ * columns_);
    for (std::size_t c = 0; c < p.size(); ++c) {
      for (std::size_t j = 0; j < columns_; ++j) {
        q_[c][j] = 0;
        for (std::size_t i = 0; i < rows_; ++i) q_[c][j] += average[i * columns_ + j] * p[c][i];
      }
      for (std::size_t i = 0; i < rows_; ++i) {
        for (std::size_t j = 0; j < columns_; ++j) result[i * columns_ + j] += p[c][i] * q_[c][j];
      }
    }
    for (std::size_t r = 0; r < gradients.size(); ++r) {
      for (std::size_t i = 0; i < result.size(); ++i) errors_[r][i] = gradients[r][i] - result[i];
    }
    return result;
  }

 private:
  static Vector mean(const std::vector<Vector>& gradients) {
    Vector sum(gradients[0].size());
    for (const Vector& one : gradients) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i] / static_cast<double>(gradients.size());
    }
    return sum;
  }
  Matrix first_factor() {
    const std::size_t rank = std::min({rows_, columns_, options_.matrix_approximation_rank});
    Vector drawn(rank * columns_);
    rondo::trainer::NormalNumbers(seeds_.next()).fill(std::span<double>(drawn));
    Matrix q(rank, Vector(columns_));
    for (std::size_t c = 0; c < rank; ++c) {
      for (std::size_t j = 0; j < columns_; ++j) q[c][j] = drawn[j * rank + c];
    }
    return q;
  }
  static void orthonormalize(Matrix& vectors) {
    for (std::size_t c = 0; c < vectors.size(); ++c) {
      for (std::size_t d = 0; d < c; ++d) {
        double dot = 0;
        for (std::size_t i = 0; i < vectors[c].size(); ++i) dot += vectors[c][i] * vectors[d][i];
        for (std::size_t i = 0; i < vectors[c].size(); ++i) vectors[c][i] -= dot * vectors[d][i];
      }
      double square = 0;
      for (const double value : vectors[c]) square += value * value;
      for (double& value : vectors[c]) value /= std::sqrt(square);
    }
  }

  std::size_t rows_, columns_;
  PowerSgdOptions options_;
  std::vector<Vector> errors_;
  rondo::trainer::NumpySeeds seeds_;
  Matrix q_;
  std::size_t steps_ = 0;
};

}  // namespace

TEST_CASE("normally distributed numbers are those of torch.randn, seeds those of numpy's RandomState") {
  rondo::trainer::NormalNumbers numbers(123);
  Vector few(3), many(18), again(4);
  numbers.fill(std::span(few));
  numbers.fill(std::span(many));
  numbers.fill(std::span(again));
  CHECK(few == Vector{-0x1.c891be348e115p-4, 0x1.ed01b1c608467p-4, -0x1.7a8177fc34a66p-2});
  CHECK(many == Vector{0x1.81b0b6d2ef1f1p-2, 0x1.cd23140987ecdp-3, -0x1.088f59bb1056cp+0, 0x1.74c9245915d9ep-3,
                       -0x1.1312c5772bdb6p+0, 0x1.e78504dcfc5f2p-1, 0x1.ef00850bce3f9p+0, -0x1.2567900bf8a2fp+0,
                       0x1.3639b43076f60p-1, -0x1.918dda3164896p-2, -0x1.1cfa04e5c9ddfp+0, 0x1.e892c80660ad9p-1,
                       0x1.6c2af11cbd1bcp-1, 0x1.b52bdeb8b4444p-2, 0x1.69bbad9776b58p+0, -0x1.44301e3502718p-4,
                       0x1.0fd35f8281f7ep+0, -0x1.40dae6d09d305p-1});
  CHECK(again == Vector{-0x1.ec60429c64f0cp-3, -0x1.14df342638950p+0, -0x1.4d8060b321c47p+0, 0x1.152a069c37dbfp+0});
  rondo::trainer::NormalNumbers narrow(123);
  std::vector<float> first(3), second(18);
  narrow.fill(std::span(first));
  narrow.fill(std::span(second));
  CHECK(std::abs(first[2] - -0.3696345090866089F) < 1e-6);
  CHECK(std::abs(second[3] - -1.8060526847839355F) < 2e-6);
  CHECK(std::abs(second[17] - 1.5541585683822632F) < 2e-6);
  rondo::trainer::NumpySeeds seeds(7);
  for (const std::uint32_t seed : {327741615U, 976413892U, 128500249U, 296233462U, 809211459U})
    CHECK(seeds.next() == seed);
}

TEST_CASE("PowerSGD is the paper's: error feedback, warm start, several vectors, plain averages at first") {
  const std::vector<PowerSgdOptions> options = {
      {.start_step = 2},
      {.start_step = 1, .use_error_feedback = false},
      {.start_step = 1, .warm_start = false, .random_seed = 5},
      {.matrix_approximation_rank = 2, .start_step = 1},
      {.matrix_approximation_rank = 4, .start_step = 3, .min_compression_rate = 0.9},
  };
  for (const std::string transport : {"shm", "tcp"}) {
    for (const PowerSgdOptions& one : options) {
      INFO(transport << " " << one.matrix_approximation_rank << " " << one.start_step);
      constexpr std::size_t kRows = 17, kColumns = 11;
      std::vector<std::vector<Vector>> got(3);
      const auto errors = run_over(transport, 3, [&](Communicator& comm) {
        got[static_cast<std::size_t>(comm.rank())] = train(
            comm, kRows, kColumns, one, 6, [&](int step, std::size_t i) { return element(comm.rank(), step, i); });
      });
      REQUIRE(sentences(errors) == no_errors(3));
      CHECK(got[1] == got[0]);
      CHECK(got[2] == got[0]);
      Reference reference(kRows, kColumns, one, 3);
      for (int step = 0; step < 6; ++step) {
        std::vector<Vector> gradients(3, Vector(kRows * kColumns));
        for (int rank = 0; rank < 3; ++rank) {
          for (std::size_t i = 0; i < kRows * kColumns; ++i)
            gradients[static_cast<std::size_t>(rank)][i] = element(rank, step, i);
        }
        CHECK(apart(got[0][static_cast<std::size_t>(step)], reference.step(gradients)) < 1e-11);
      }
    }
  }
}

TEST_CASE("PowerSGD of full rank is the average, in buckets of any size, of any type, of parameters used or not") {
  for (const bool in_buckets : {false, true}) {
    for (const std::size_t bucket_bytes : {std::size_t{100}, std::size_t{600}, std::size_t{1} << 20}) {
      const auto errors = each_rank(3, [&](Communicator& comm) {
        std::vector<float> wide(20 * 6), unused(8 * 8, 3.0F), bias(20), one(1);
        Vector deep(4 * 3 * 2 * 2);
        std::vector<rondo::bfloat16> half(6 * 6);
        const auto or_null = [&](auto& array) -> void* { return in_buckets ? nullptr : array.data(); };
        GradientSynchronizer synchronizer(
            comm,
            {{"wide", nullptr, or_null(wide), 120, DataType::f32, {{20, 6}}},
             {"unused", nullptr, or_null(unused), 64, DataType::f32, {{8, 8}}},
             {"bias", nullptr, or_null(bias), 20},
             {"one", nullptr, or_null(one), 1, DataType::f32, std::vector<std::size_t>{}},
             {"deep", nullptr, or_null(deep), 48, DataType::f64, {{4, 3, 2, 2}}},
             {"half", nullptr, or_null(half), 36, DataType::bf16, {{6, 6}}}},
            {.first_bucket_bytes = bucket_bytes,
             .bucket_bytes = bucket_bytes,
             .gradients_in_buckets = in_buckets,
             .hook = power_sgd({.matrix_approximation_rank = 100, .start_step = 1, .min_compression_rate = 0.01})});
        for (int step = 0; step < 4; ++step) {
          for (float& g : synchronizer.gradient<float>(1)) g = 3;
          const auto fill = [&]<class T>(std::span<T> values, int rank) {
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(element(rank, step, i));
          };
          fill(synchronizer.gradient<float>(0), comm.rank());
          fill(synchronizer.gradient<float>(2), comm.rank());
          fill(synchronizer.gradient<float>(3), comm.rank());
          fill(synchronizer.gradient<double>(4), comm.rank());
          for (rondo::bfloat16& g : synchronizer.gradient<rondo::bfloat16>(5))
            g = rondo::bfloat16(static_cast<float>(3 * comm.rank()));
          for (const std::size_t index : {std::size_t{5}, std::size_t{4}, std::size_t{3}, std::size_t{2}})
            synchronizer.ready(index);
          if (comm.rank() != 1) synchronizer.ready(0);
          synchronizer.finish();
          const auto average = [&](std::size_t i, bool all) {
            return (element(0, step, i) + (all ? element(1, step, i) : 0) + element(2, step, i)) / 3;
          };
          for (std::size_t i = 0; i < 120; ++i)
            expect(std::abs(synchronizer.gradient<float>(0)[i] - average(i, false)) < 2e-6, "wide");
          for (std::size_t i = 0; i < 20; ++i)
            expect(std::abs(synchronizer.gradient<float>(2)[i] - average(i, true)) < 1e-6, "bias");
          expect(std::abs(synchronizer.gradient<float>(3)[0] - average(0, true)) < 1e-6, "one");
          for (std::size_t i = 0; i < 48; ++i)
            expect(std::abs(synchronizer.gradient<double>(4)[i] - average(i, true)) < 1e-14, "deep");
          for (const rondo::bfloat16 g : synchronizer.gradient<rondo::bfloat16>(5))
            expect(static_cast<float>(g) == 3, "half");
          for (const float g : synchronizer.gradient<float>(1)) expect(g == 3, "unused");
          expect(synchronizer.unused_everywhere() == std::vector<std::size_t>{1}, "unused everywhere");
        }
      });
      CHECK(errors == no_errors(3));
    }
  }
}

TEST_CASE("PowerSGD sends the factors and what is no matrix, nothing else") {
  const auto errors = each_rank(2, [](Communicator& comm) {
    std::vector<float> matrix(40 * 30), bias(40);
    GradientSynchronizer synchronizer(
        comm, {{"matrix", nullptr, matrix.data(), 1200, DataType::f32, {{40, 30}}}, {"bias", nullptr, bias.data(), 40}},
        {.hook = power_sgd({.matrix_approximation_rank = 2, .start_step = 1})});
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < 1200; ++i) matrix[i] = static_cast<float>(element(comm.rank(), step, i));
      synchronizer.ready(1);
      synchronizer.ready(0);
      synchronizer.finish();
    }
    std::vector<std::size_t> counts;
    const auto record = nlohmann::json::parse(comm.flight_record());
    for (const auto& call : record["calls"]) {
      if (call["collective"] == "all_reduce") counts.push_back(call["count"]);
    }
    const std::size_t marks = 2 + 2 * 5 + 1;
    expect(counts == std::vector<std::size_t>{1200 + 40 + marks, 2 * 40 + 1 + 40 + marks, 2 * 30}, "what was sent");
    expect(synchronizer.last_step().buckets.size() == 2, "rounds in the record");
  });
  CHECK(errors == no_errors(2));
}

TEST_CASE("PowerSGD gives back later what a step lost, also while ranks do not use the parameter") {
  for (const bool feedback : {true, false}) {
    std::vector<std::vector<Vector>> got(2);
    CHECK(each_rank(2, [&](Communicator& comm) {
            got[static_cast<std::size_t>(comm.rank())] =
                train(comm, 12, 10, {.start_step = 1, .use_error_feedback = feedback}, 400,
                      [&](int, std::size_t i) { return element(comm.rank(), 0, i); });
          }) == no_errors(2));
    Vector mean(120), wanted(120);
    for (std::size_t i = 0; i < 120; ++i) {
      wanted[i] = (element(0, 0, i) + element(1, 0, i)) / 2;
      for (const Vector& step : got[0]) mean[i] += step[i] / 400;
    }
    CHECK((apart(mean, wanted) < 0.1 * apart(Vector(120), wanted)) == feedback);
  }
  Vector mean(120), wanted(120);
  CHECK(each_rank(2, [&](Communicator& comm) {
          Vector gradient(120);
          GradientSynchronizer synchronizer(comm, {{"m", nullptr, gradient.data(), 120, DataType::f64, {{12, 10}}}},
                                            {.hook = power_sgd({.start_step = 1})});
          for (int step = 0; step < 800; ++step) {
            for (std::size_t i = 0; i < 120; ++i) gradient[i] = element(comm.rank(), 0, i);
            const bool used = step % 2 == 0;
            if (used) synchronizer.ready(0);
            synchronizer.finish();
            expect(used || gradient[7] == element(comm.rank(), 0, 7), "an unused gradient was touched");
            for (std::size_t i = 0; used && comm.rank() == 0 && i < 120; ++i) mean[i] += gradient[i] / 400;
          }
        }) == no_errors(2));
  for (std::size_t i = 0; i < 120; ++i) wanted[i] = (element(0, 0, i) + element(1, 0, i)) / 2;
  CHECK(apart(mean, wanted) < 0.1 * apart(Vector(120), wanted));
}

TEST_CASE("PowerSGD: an infinity reaches all ranks in its step and is gone in the next") {
  const auto errors = each_rank(2, [](Communicator& comm) {
    const auto results = train(comm, 12, 10, {.start_step = 1}, 5, [&](int step, std::size_t i) {
      return step == 2 && comm.rank() == 1 && i == 17 ? std::numeric_limits<double>::infinity()
                                                      : element(comm.rank(), step, i);
    });
    const auto all_finite = [](const Vector& v) {
      return std::all_of(v.begin(), v.end(), [](double value) { return std::isfinite(value); });
    };
    expect(!all_finite(results[2]), "an infinity was lost");
    expect(all_finite(results[1]) && all_finite(results[3]) && all_finite(results[4]), "an infinity stayed");
  });
  CHECK(errors == no_errors(2));
}

TEST_CASE("PowerSGD refuses options that make no sense, devices, and other options on other ranks") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(power_sgd({.matrix_approximation_rank = 0}), Catch::Contains("matrix_approximation_rank is 0"));
  CHECK_THROWS_WITH(power_sgd({.start_step = 0}), Catch::Contains("start_step is 0"));
  CHECK_THROWS_WITH(power_sgd({.min_compression_rate = kNan}), Catch::Contains("min_compression_rate is nan"));
  CHECK_THROWS_WITH(power_sgd({.orthogonalization_epsilon = -1}), Catch::Contains("orthogonalization_epsilon is -1"));
  for (const auto& said : sentences(run_over("sim", 1, [](Communicator& comm) {
         GradientSynchronizer synchronizer(comm, {{"p", nullptr, nullptr, 3}},
                                           {.gradients_in_buckets = true, .hook = power_sgd({})});
       })))
    CHECK_THAT(said, Catch::Contains("power_sgd: gradients are in device memory"));
  for (const auto& said : each_rank(2, [](Communicator& comm) {
         float gradient = 0;
         const auto seed = static_cast<std::uint32_t>(comm.rank());
         GradientSynchronizer synchronizer(comm, {{"p", nullptr, &gradient, 1}},
                                           {.hook = power_sgd({.random_seed = seed})});
       }))
    CHECK_THAT(said, Catch::Contains("seed 0") && Catch::Contains("seed 1") &&
                         Catch::Contains("pass the same options on every rank"));
}
