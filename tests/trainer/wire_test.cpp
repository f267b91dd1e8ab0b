// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/wire.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include <rondo/trainer/gradient_synchronizer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/worlds.hpp"
#include "trainer/convert.hpp"

namespace {

using rondo::Communicator;
using rondo::DataType;
using rondo::test::each_rank;
using rondo::test::expect;
using rondo::test::no_errors;
using rondo::trainer::Bucket;
using rondo::trainer::GradientSynchronizer;

// Every pattern of 16 bits, and in float the values halfway between and just beside them.
std::vector<float> telling_floats() {
  std::vector<float> all;
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low : {0x0000U, 0x0fffU, 0x1000U, 0x1001U, 0x3000U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      const std::uint32_t bits = high << 16 | low;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      all.push_back(value);
    }
  }
  return all;
}

// The same number; any NaN is any NaN.
template <class Small>
bool same(std::uint16_t bits, Small expected) {
  Small got;
  got.bits = bits;
  return got == expected || (std::isnan(static_cast<float>(got)) && std::isnan(static_cast<float>(expected)));
}

template <class Small>
void check_conversions(DataType wire) {
  const std::vector<float> values = telling_floats();
  std::vector<std::uint16_t> narrow(values.size());
  rondo::trainer::convert::narrow(values.data(), narrow.data(), values.size(), 1.0, wire);
  std::vector<float> wide(values.size());
  rondo::trainer::convert::widen(narrow.data(), wide.data(), wide.size(), 1.0, wire);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Small expected(values[i]);
    const auto back = static_cast<float>(expected);
    wrong += !same(narrow[i], expected) || !(wide[i] == back || (std::isnan(wide[i]) && std::isnan(back)));
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("conversions to 16 bits and back are those of the scalar types, for every kind of number") {
  check_conversions<rondo::float16>(DataType::f16);
  check_conversions<rondo::bfloat16>(DataType::bf16);
  const std::vector<double> values = {1.0, -3.0, 1e300, 0.1};
  std::vector<std::uint16_t> narrow(4);
  rondo::trainer::convert::narrow(values.data(), narrow.data(), 4, 0.5, DataType::bf16);
  CHECK(same(narrow[1], rondo::bfloat16(-1.5F)));
  CHECK(same(narrow[2], rondo::bfloat16(std::numeric_limits<float>::infinity())));
  CHECK(same(narrow[3], rondo::bfloat16(0.05F)));
}

TEST_CASE("compressed buckets of any type average to what 16 bits hold; unused parameters are still found") {
  for (const DataType wire : {DataType::f16, DataType::bf16}) {
    for (const bool in_buckets : {false, true}) {
      const auto errors = each_rank(4, [&](Communicator& comm) {
        std::vector<float> single(100);
        std::vector<double> wide(30);
        std::vector<float> unused(3, 8.0F);
        auto hook = rondo::trainer::compress_to(wire);
        GradientSynchronizer synchronizer(
            comm,
            {{"single", nullptr, in_buckets ? nullptr : single.data(), 100},
             {"wide", nullptr, in_buckets ? nullptr : wide.data(), 30, DataType::f64, {}},
             {"unused", nullptr, in_buckets ? nullptr : unused.data(), 3}},
            {.first_bucket_bytes = 64, .bucket_bytes = 128, .gradients_in_buckets = in_buckets, .hook = hook});
        for (int step = 0; step < 3; ++step) {
          for (std::size_t i = 0; i < 100; ++i)
            synchronizer.gradient<float>(0)[i] = static_cast<float>((comm.rank() + 1) * 4 * static_cast<int>(i % 11));
          for (std::size_t i = 0; i < 30; ++i) synchronizer.gradient<double>(1)[i] = comm.rank() == 3 ? -16.0 : 0.0;
          for (float& g : synchronizer.gradient<float>(2)) g = 0.3F;
          synchronizer.ready(0);
          if (comm.rank() == 3) synchronizer.ready(1);
          synchronizer.finish();
          for (std::size_t i = 0; i < 100; ++i)  // 4 * (1 + 2 + 3 + 4) / 4
            expect(synchronizer.gradient<float>(0)[i] == static_cast<float>(10 * (i % 11)), "single");
          for (const double g : synchronizer.gradient<double>(1)) expect(g == -4.0, "wide");
          for (const float g : synchronizer.gradient<float>(2)) expect(g == 0.3F, "an unused one was rounded");
          expect(synchronizer.unused_everywhere() == std::vector<std::size_t>{2}, "unused");
        }
      });
      CHECK(errors == no_errors(4));
    }
  }
}

TEST_CASE("a large sum does not overflow on the wire where the average does not; an infinity reaches all") {
  const auto errors = each_rank(4, [](Communicator& comm) {
    std::vector<float> gradient = {60000.0F, 1.0F};
    if (comm.rank() == 2) gradient[1] = std::numeric_limits<float>::infinity();
    GradientSynchronizer synchronizer(comm, {{"p", nullptr, gradient.data(), 2}},
                                      {.hook = rondo::trainer::compress_to(DataType::f16)});
    synchronizer.ready(0);
    synchronizer.finish();
    expect(std::abs(gradient[0] - 60000.0F) <= 32, "overflow");
    expect(!std::isfinite(gradient[1]), "infinity was lost");
  });
  CHECK(errors == no_errors(4));
}

// What 16 bits hold at most, on every rank and on some: sums of any of them stay finite, in whatever order.
template <class Small>
void check_edges(DataType wire, float most, int world) {
  constexpr std::size_t kLong = 300'000;
  const auto errors = each_rank(world, [&](Communicator& comm) {
    const bool even = comm.rank() % 2 == 0;
    std::vector<float> gradient(kLong, most);
    gradient[0] = even ? most : -most;
    gradient[1] = comm.rank() < comm.world_size() / 2 ? most : -most;
    gradient[2] = comm.rank() == 0 ? most : 0.0F;
    std::vector<double> wide(3, -static_cast<double>(most));
    GradientSynchronizer synchronizer(
        comm, {{"p", nullptr, gradient.data(), kLong}, {"wide", nullptr, wide.data(), 3, DataType::f64, {}}},
        {.hook = rondo::trainer::compress_to(wire)});
    synchronizer.ready(0);
    synchronizer.ready(1);
    synchronizer.finish();
    const int ranks = comm.world_size();
    const float odd_one = ranks % 2 == 0 ? 0.0F : most / static_cast<float>(ranks);
    const auto about = [&](float got, float expected) {
      expect(std::abs(got - expected) <= most / (std::is_same_v<Small, rondo::float16> ? 1024 : 128),
             std::to_string(got) + ", not about " + std::to_string(expected));
    };
    about(gradient[0], odd_one);
    about(gradient[1], ranks % 2 == 0 ? 0.0F : -odd_one);
    about(gradient[2], most / static_cast<float>(ranks));
    about(gradient[3], most);
    about(gradient[kLong - 1], most);
    about(static_cast<float>(wide[1]), -most);
  });
  CHECK(errors == no_errors(static_cast<std::size_t>(world)));
}

TEST_CASE("the largest gradients that 16 bits hold have averages, whatever the number of ranks") {
  const int world = GENERATE(1, 2, 3, 4, 5, 6, 7, 8, 11);
  CAPTURE(world);
  check_edges<rondo::float16>(DataType::f16, 65504.0F, world);
  check_edges<rondo::float16>(DataType::f16, 65519.0F, world);
  check_edges<rondo::bfloat16>(DataType::bf16, 3.38953139e38F, world);
}

namespace {

// Sends nothing but the signs, by way of an all_gather: an algorithm that is not an all_reduce.
class Signs : public rondo::trainer::BucketHook {
 public:
  void prepare(Communicator&, std::span<const Bucket> buckets) override { buckets_ = buckets.size(); }
  rondo::Work start(Communicator& communicator, const Bucket& bucket) override {
    std::vector<std::int8_t> mine(bucket.count),
        all(bucket.count * static_cast<std::size_t>(communicator.world_size()));
    auto* const data = reinterpret_cast<float*>(bucket.data);
    for (std::size_t i = 0; i < bucket.count; ++i) mine[i] = data[i] > 0 ? 1 : data[i] < 0 ? -1 : 0;
    communicator.all_gather(mine, all);
    for (std::size_t i = 0; i < bucket.count; ++i) {
      int sum = 0;
      for (std::size_t r = i; r < all.size(); r += bucket.count) sum += all[r];
      data[i] = static_cast<float>(sum) / static_cast<float>(communicator.world_size());
    }
    ++started_;
    return {};
  }
  void finish(const Bucket&) override { ++finished_; }

  std::size_t buckets_ = 0, started_ = 0, finished_ = 0;
};

}  // namespace

TEST_CASE("a hook of one's own reduces every bucket, in order") {
  const auto errors = each_rank(3, [](Communicator& comm) {
    std::vector<float> a(50, comm.rank() == 0 ? -9.0F : 5.0F), b(50, 2.0F);
    const auto hook = std::make_shared<Signs>();
    GradientSynchronizer synchronizer(comm, {{"a", nullptr, a.data(), 50}, {"b", nullptr, b.data(), 50}},
                                      {.first_bucket_bytes = 100, .bucket_bytes = 100, .hook = hook});
    synchronizer.ready(comm.rank() == 0 ? 0 : 1);
    synchronizer.ready(comm.rank() == 0 ? 1 : 0);
    synchronizer.finish();
    expect(a[49] == 1.0F / 3 && b[0] == 1, "not the averages of signs");
    expect(hook->started_ == hook->buckets_ && hook->finished_ == hook->buckets_ && hook->buckets_ == 4, "calls");
  });
  CHECK(errors == no_errors(3));
}

TEST_CASE("what cannot be compressed is refused") {
  CHECK_THROWS_AS(rondo::trainer::compress_to(DataType::f8e4m3), rondo::Error);
  for (const auto& error : rondo::test::run_ranks(
           1, {.device = rondo::Device::sim(), .timeout = rondo::test::kDeadline}, [](Communicator& comm) {
             GradientSynchronizer synchronizer(
                 comm, {{"p", nullptr, nullptr, 3}},
                 {.gradients_in_buckets = true, .hook = rondo::trainer::compress_to(DataType::f16)});
           })) {
    CHECK(rondo::test::sentence_of(error).find("device memory") != std::string::npos);
  }
}
