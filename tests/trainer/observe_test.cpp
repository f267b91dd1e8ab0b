// SPDX-License-Identifier: Apache-2.0
// Drift check and statistics.
#include <rondo/trainer/drift.hpp>

#include <stdexcept>

#include <rondo/device.hpp>
#include <rondo/trainer/gradient_synchronizer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::each_rank;
using rondo::test::expect;
using rondo::test::no_errors;
using rondo::trainer::DriftCheck;
using rondo::trainer::Parameter;

}  // namespace

TEST_CASE("one flipped bit anywhere is found, at the next check, with the tensor and the rank") {
  const int odd = GENERATE(0, 2);
  for (const std::size_t at : {0U, 31U, 32U, 100U, 402U}) {
    const auto errors = each_rank(3, [at, odd](Communicator& comm) {
      std::vector<std::uint8_t> first(10), second(403, 7), third(10);
      const std::vector<Parameter> all = {{"first", first.data(), nullptr, 10, rondo::DataType::u8, {}},
                                          {"second", second.data(), nullptr, 403, rondo::DataType::u8, {}},
                                          {"third", third.data(), nullptr, 10, rondo::DataType::u8, {}}};
      DriftCheck drift(comm, 3);
      for (int step = 1; step <= 6; ++step) {
        if (step == 4 && comm.rank() == odd) second[at] = static_cast<std::uint8_t>(second[at] ^ 16U), third[0] = 1;
        if (step == 6) comm.barrier();  // so far nobody has thrown
        drift.after_step(all);
      }
    });
    for (const std::string& error : errors) {
      INFO(error);
      CHECK_THAT(error,
                 Catch::Contains(odd == 0 ? "after 6 steps 'second' has other bits on the ranks 0 than on rank 1"
                                          : "after 6 steps 'second' has other bits on the ranks 2 than on rank 0"));
    }
  }
}

TEST_CASE("equal replicas pass the drift check; values in device memory are hashed too") {
  CHECK(each_rank(2, [](Communicator& comm) {
          std::vector<double> values(1000, 0.1);
          DriftCheck(comm, 1).after_step(std::vector<Parameter>{rondo::trainer::parameter("p", std::span(values))});
        }) == no_errors(2));
  const auto errors = rondo::test::run_ranks(
      2, {.device = rondo::Device::sim(), .timeout = rondo::test::kDeadline}, [](Communicator& comm) {
        rondo::DeviceArray<float> same(comm.device(), std::vector<float>(70, 2.0F));
        rondo::DeviceArray<float> other(comm.device(), std::vector<float>(70, static_cast<float>(comm.rank())));
        DriftCheck drift(comm, 1);
        drift.check(std::vector<Parameter>{rondo::trainer::parameter("same", same.span())});
        drift.check(std::vector<Parameter>{rondo::trainer::parameter("same", same.span()),
                                           rondo::trainer::parameter("other", other.span())});
      });
  for (const auto& error : errors) CHECK(rondo::test::sentence_of(error).find("'other'") != std::string::npos);
}

TEST_CASE("a step's parts follow one another, and buckets count every byte") {
  const auto errors = each_rank(2, [](Communicator& comm) {
    std::vector<float> a(3000, 1.0F), b(2000, 1.0F);
    rondo::trainer::GradientSynchronizer synchronizer(
        comm, {{"a", nullptr, a.data(), a.size()}, {"b", nullptr, b.data(), b.size()}},
        {.first_bucket_bytes = 4000, .bucket_bytes = 8000});
    for (int step = 0; step < 3; ++step) {
      synchronizer.begin_forward();
      synchronizer.begin_backward();
      synchronizer.ready(1);
      synchronizer.ready(0);
      synchronizer.finish();
      const auto& record = synchronizer.last_step();
      expect(record.step == static_cast<std::size_t>(step), "step");
      expect(record.forward <= record.backward && record.backward <= record.finish && record.finish <= record.end,
             "order");
      expect(record.buckets.size() == 4, "buckets");
      expect(record.bytes() >= 5000 * sizeof(float) && record.bytes() < 5100 * sizeof(float), "bytes");
      for (const auto& bucket : record.buckets)
        expect(record.backward <= bucket.submitted && bucket.submitted <= bucket.finished &&
                   bucket.started < bucket.finished && bucket.finished <= record.end,
               "a bucket outside its step");
    }
    const auto& sums = synchronizer.statistics();
    expect(sums.steps == 3 && sums.buckets == 12 && sums.bytes > 3 * 5000 * sizeof(float), "sums");
    expect(sums.communication_seconds > 0 && sums.exposed_seconds > 0, "times");
  });
  CHECK(errors == no_errors(2));
}

TEST_CASE("of three ranks the one that differs is blamed, be it rank 0; of two, both") {
  const int odd = GENERATE(0, 1, 2);
  const auto differs = GENERATE(0, 1, 2);  // in bits, in the number of tensors, in what is registered
  const auto blamed = [&](int world_size) {
    const auto errors =
        rondo::test::run_ranks(world_size, {.timeout = rondo::test::kDeadline}, [&](Communicator& comm) {
          const bool is_odd = comm.rank() == odd % world_size;
          std::vector<float> values(8, is_odd && differs == 0 ? 1.0F : 2.0F), gradients(8);
          std::vector<Parameter> parameters = {{"one", values.data(), gradients.data(), 8}};
          if (is_odd && differs == 1) parameters.push_back({"two", values.data(), nullptr, 8});
          if (is_odd && differs == 2) parameters.front().name = "two";
          if (differs == 2) {
            rondo::trainer::GradientSynchronizer(comm, parameters, {});
          } else {
            DriftCheck(comm, 1).check(parameters);
          }
        });
    for (const auto& error : errors) {
      INFO(rondo::test::sentence_of(error));
      CHECK(rondo::test::code_of(error) == rondo::ErrorCode::mismatch);
      CHECK(rondo::test::culprit_of(error) == (world_size == 3 ? odd : -1));
      CHECK(rondo::test::culprits_of(error) == (world_size == 3 ? std::vector{odd} : std::vector{0, 1}));
    }
  };
  blamed(3);
  blamed(2);
}
