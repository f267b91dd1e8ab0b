// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/gradients.hpp>

#include <sys/mman.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include <rondo/trainer/drift.hpp>
#include <rondo/trainer/gradient_synchronizer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::DataType;
using rondo::test::each_rank;
using rondo::test::expect;
using rondo::test::no_errors;
using rondo::trainer::GradientSynchronizer;
using rondo::trainer::LossScaler;
using rondo::trainer::Parameter;

}  // namespace

TEST_CASE("gradients of all types are clipped by their common norm, smaller ones are left alone") {
  std::vector<float> a = {3, 0};
  std::vector<double> b = {0, 4};
  std::vector<rondo::bfloat16> c = {rondo::bfloat16(12.0F)};
  const std::vector<Parameter> all = {{"a", nullptr, a.data(), 2},
                                      {"b", nullptr, b.data(), 2, DataType::f64, {}},
                                      {"c", nullptr, c.data(), 1, DataType::bf16, {}}};
  CHECK(rondo::trainer::gradient_norm(all) == 13);
  CHECK(rondo::trainer::clip_gradients(all, 13) == 13);
  CHECK(a[0] == 3);
  CHECK(rondo::trainer::clip_gradients(all, 6.5) == 13);
  CHECK(a[0] == 1.5F);
  CHECK(b[1] == 2);
  CHECK(static_cast<float>(c[0]) == 6);
  b[0] = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(rondo::trainer::clip_gradients(all, 1)));
  CHECK(a[0] == 1.5F);
}

TEST_CASE("the loss scale grows after good steps, backs off after bad ones, and stays within its bounds") {
  float gradient = 0;
  const std::vector<Parameter> all = {{"p", nullptr, &gradient, 1}};
  LossScaler scaler({.scale = 8, .interval = 2, .minimum = 2, .maximum = 32});
  const auto step = [&](float value) {
    gradient = value;
    return scaler.unscale(all);
  };
  CHECK(step(16));
  CHECK(gradient == 2);
  CHECK(scaler.scale() == 8);
  CHECK(step(1));
  CHECK(scaler.scale() == 16);
  CHECK(step(1));
  CHECK_FALSE(step(std::numeric_limits<float>::infinity()));
  CHECK(scaler.scale() == 8);
  CHECK(step(1));  // counts from the beginning
  CHECK(scaler.scale() == 8);
  for (int i = 0; i < 5; ++i) CHECK_FALSE(step(std::nanf("")));
  CHECK(scaler.scale() == 2);
  for (int i = 0; i < 20; ++i) CHECK(step(1));
  CHECK(scaler.scale() == 32);
  CHECK(scaler.skipped() == 6);
  LossScaler restored;
  restored.restore(scaler.scale(), scaler.good_steps());
  CHECK(restored.scale() == 32);
}

TEST_CASE("a scaler that had more good steps than the interval grows at the next one") {
  float gradient = 1;
  LossScaler scaler({.scale = 8, .interval = 2});
  scaler.restore(16, 7);
  CHECK(scaler.unscale(std::vector<Parameter>{{"p", nullptr, &gradient, 1}}));
  CHECK(scaler.scale() == 32);
  CHECK(scaler.good_steps() == 0);
  for (const double scale : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    CHECK_THROWS_AS(scaler.restore(scale, 0), rondo::Error);
  CHECK(scaler.scale() == 32);
}

TEST_CASE("a gradient that no rank had in the last step is neither clipped nor scaled, whatever lies there") {
  const bool in_buckets = GENERATE(false, true);
  CHECK(each_rank(2, [in_buckets](Communicator& comm) {
          std::vector<double> own(8), values(4);
          double* const first = in_buckets ? nullptr : own.data();
          double* const second = in_buckets ? nullptr : own.data() + 4;
          GradientSynchronizer synchronizer(
              comm,
              {{"a", values.data(), first, 4, DataType::f64, {}}, {"b", values.data(), second, 4, DataType::f64, {}}},
              {.gradients_in_buckets = in_buckets});
          LossScaler scaler({.scale = 4});
          const auto step = [&](bool both, double b) {
            for (double& g : synchronizer.gradient<double>(0)) g = 3 * scaler.scale();
            synchronizer.ready(0);
            if (both) {
              for (double& g : synchronizer.gradient<double>(1)) g = b * scaler.scale();
              synchronizer.ready(1);
            }
            synchronizer.finish();
            return scaler.unscale(synchronizer.averaged());
          };
          expect(step(true, 8), "a good step");
          expect(step(false, 0), "a step without b");
          expect(synchronizer.gradient<double>(1)[0] == 8, "b was divided again");
          expect(rondo::trainer::gradient_norm(synchronizer.averaged()) == 6, "norm");
          expect(!step(true, std::numeric_limits<double>::infinity()), "an infinity");
          expect(step(false, 0), "an infinity of the step before");
          expect(rondo::trainer::clip_gradients(synchronizer.averaged(), 3) == 6, "norm behind an infinity");
          expect(synchronizer.gradient<double>(0)[0] == 1.5, "clipped");
        }) == no_errors(2));
}

TEST_CASE("gradients that the CPU cannot reach are refused, and none is changed") {
  float near = 4;
  void* const far = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(far != MAP_FAILED);
  const std::vector<Parameter> all = {{"near", nullptr, &near, 1}, {"far", nullptr, far, 8}};
  const auto refused = [](auto call) {
    return rondo::test::contains(rondo::test::sentence_of(rondo::test::thrown_by(call)),
                                 "the gradient of 'far' is where the CPU cannot reach it");
  };
  CHECK(refused([&] { rondo::trainer::gradient_norm(all); }));
  CHECK(refused([&] { rondo::trainer::clip_gradients(all, 1); }));
  CHECK(refused([&] { LossScaler().unscale(all); }));
  CHECK(near == 4);
  CHECK(rondo::test::contains(rondo::test::sentence_of(rondo::test::thrown_by([&] {
                                rondo::trainer::hash_values({"far", far, nullptr, 8});
                              })),
                              "the values of 'far' are where the CPU cannot reach them"));
  ::munmap(far, 4096);
}

TEST_CASE("an infinity or a NaN of one rank makes all ranks skip the step, in agreement") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const auto errors = each_rank(3, [bad](Communicator& comm) {
      std::vector<float> gradient(40), values(40, 1.0F);
      rondo::trainer::GradientSynchronizer synchronizer(comm, {{"p", nullptr, gradient.data(), 40}});
      LossScaler scaler({.scale = 1024});
      std::size_t steps = 0;
      for (int step = 0; step < 6; ++step) {
        gradient.assign(40, static_cast<float>(scaler.scale()));
        if (step == 3 && comm.rank() == 1) gradient[17] = bad;
        synchronizer.ready(0);
        synchronizer.finish();
        steps += scaler.unscale(synchronizer.parameters());
      }
      if (steps != 5 || scaler.scale() != 512) throw std::runtime_error("not in agreement");
      // Without synchronisation agreement takes the communicator.
      gradient.assign(40, comm.rank() == 2 ? bad : 1.0F);
      if (scaler.unscale(synchronizer.parameters(), &comm)) throw std::runtime_error("went on alone");
    });
    CHECK(errors == no_errors(3));
  }
}
