// SPDX-License-Identifier: Apache-2.0
#include "trainer/buckets.hpp"

#include "tests/support/catch.hpp"

namespace {

using rondo::DataType;
using rondo::trainer::BucketPlan;
using rondo::trainer::Parameter;
using rondo::trainer::Piece;

Parameter of(std::size_t count, DataType dtype = DataType::f32) {
  return {.name = "p", .gradient = nullptr, .count = count, .dtype = dtype};
}

// Buckets of 8 and 16 floats.
std::vector<BucketPlan> plan(const std::vector<Parameter>& parameters) {
  return rondo::trainer::plan_buckets(parameters, {.first_bucket_bytes = 32, .bucket_bytes = 64},
                                      rondo::trainer::reverse_order(parameters.size()));
}

bool same(const Piece& a, const Piece& b) {
  return a.parameter == b.parameter && a.first == b.first && a.offset == b.offset && a.count == b.count;
}

}  // namespace

TEST_CASE("parameters are packed in reverse order, the first bucket small") {
  const auto buckets = plan({of(10), of(4), of(3), of(5)});
  REQUIRE(buckets.size() == 2);
  REQUIRE(buckets[0].pieces.size() == 2);
  CHECK(same(buckets[0].pieces[0], {3, 0, 0, 5}));
  CHECK(same(buckets[0].pieces[1], {2, 0, 5, 3}));
  REQUIRE(buckets[1].pieces.size() == 2);
  CHECK(same(buckets[1].pieces[0], {1, 0, 0, 4}));
  CHECK(same(buckets[1].pieces[1], {0, 0, 4, 10}));
}

TEST_CASE("a parameter larger than a bucket is split, a smaller one is not") {
  const auto buckets = plan({of(40), of(7), of(2)});
  REQUIRE(buckets.size() == 5);
  CHECK(same(buckets[0].pieces[0], {2, 0, 0, 2}));
  CHECK(same(buckets[1].pieces[0], {1, 0, 0, 7}));
  CHECK(same(buckets[2].pieces[0], {0, 0, 0, 16}));
  CHECK(same(buckets[3].pieces[0], {0, 16, 0, 16}));
  CHECK(same(buckets[4].pieces[0], {0, 32, 0, 8}));
}

TEST_CASE("every element of every parameter lies in one bucket, whatever the sizes and dtypes") {
  std::vector<Parameter> parameters;
  std::uint32_t state = 1;
  for (int i = 0; i < 200; ++i) {
    state = state * 1664525u + 1013904223u;
    const DataType dtypes[] = {DataType::f32, DataType::f64, DataType::bf16};
    parameters.push_back(of((state >> 8) % 50, dtypes[(state >> 20) % 3]));
  }
  std::vector<std::vector<int>> seen;
  for (const Parameter& p : parameters) seen.emplace_back(p.count, 0);
  for (const BucketPlan& bucket : plan(parameters)) {
    std::size_t offset = 0;
    CHECK(bucket.count * rondo::size_of(bucket.dtype) <= 64);
    for (const Piece& piece : bucket.pieces) {
      CHECK(parameters[piece.parameter].dtype == bucket.dtype);
      CHECK(piece.offset == offset);
      offset += piece.count;
      for (std::size_t i = 0; i < piece.count; ++i) ++seen[piece.parameter].at(piece.first + i);
    }
    CHECK(bucket.count == offset);
  }
  for (const auto& elements : seen) {
    for (const int times : elements) CHECK(times == 1);
  }
}

TEST_CASE("a parameter of no elements still has its place, so that it counts as ready") {
  const auto buckets = plan({of(0)});
  REQUIRE(buckets.size() == 1);
  CHECK(buckets[0].count == 0);
  CHECK(buckets[0].pieces.size() == 1);
}
