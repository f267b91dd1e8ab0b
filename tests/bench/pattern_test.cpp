// SPDX-License-Identifier: Apache-2.0
#include "bench/pattern.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/reduce.hpp"
#include "tests/support/catch.hpp"

namespace {

using rondo::DataType;
using rondo::ReduceOp;
using rondo::bench::Reduction;
using rondo::bench::Source;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kCount = 1200;  // more than two blocks
constexpr std::size_t kFirst = 77;

Bytes contribution(const Reduction& r, int rank) {
  Bytes bytes(kCount * rondo::size_of(r.dtype));
  rondo::bench::fill_values(bytes.data(), kCount, r, {rank, kFirst, 5});
  if (r.op == ReduceOp::premultiplied_sum) {
    rondo::kernels::find_multiply(r.dtype)(bytes.data(), bytes.data(), kCount, rondo::bench::factor_of(rank));
  }
  return bytes;
}

// Combines pairs in the order given, rounding to the type after every step: the least exact way there is.
Bytes reduce_in_order(const Reduction& r, const std::vector<int>& order) {
  Bytes sum = contribution(r, order[0]);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Bytes next = contribution(r, order[i]);
    rondo::kernels::fold_pair(rondo::kernels::find_fold(r.dtype, r.op), sum.data(), sum.data(), next.data(), kCount);
  }
  if (r.op == ReduceOp::average) {
    rondo::kernels::find_divide(r.dtype)(sum.data(), sum.data(), kCount, static_cast<double>(r.world_size));
  }
  return sum;
}

std::size_t wrong(const Bytes& got, const Reduction& r) {
  return rondo::bench::count_wrong_values(got.data(), kCount, r, {-1, kFirst, 5});
}

}  // namespace

TEST_CASE("reductions are exact in every type, for every operator, in any order of the ranks") {
  for (int d = 0; d < rondo::kDataTypeCount; ++d) {
    for (int o = 0; o < rondo::kReduceOpCount; ++o) {
      const Reduction probe{static_cast<DataType>(d), static_cast<ReduceOp::Kind>(o), 1};
      if (!rondo::is_supported(probe.dtype, probe.op)) continue;
      for (const int world_size : {1, 2, 3, 7, 8, 9, 17, 64}) {
        Reduction r = probe;
        r.world_size = world_size;
        std::vector<int> order(static_cast<std::size_t>(world_size));
        std::iota(order.begin(), order.end(), 0);
        INFO(rondo::name_of(r.dtype) << " " << rondo::name_of(r.op) << " of " << world_size);
        CHECK(wrong(reduce_in_order(r, order), r) == 0);
        std::reverse(order.begin(), order.end());
        CHECK(wrong(reduce_in_order(r, order), r) == 0);
        std::rotate(order.begin(), order.begin() + world_size / 3, order.end());
        CHECK(wrong(reduce_in_order(r, order), r) == 0);
      }
    }
  }
}

TEST_CASE("a contribution that is dropped, doubled or shifted by one is seen") {
  for (int d = 0; d < rondo::kDataTypeCount; ++d) {
    for (const ReduceOp::Kind op : {ReduceOp::sum, ReduceOp::product, ReduceOp::average}) {
      const Reduction r{static_cast<DataType>(d), op, 4};
      INFO(rondo::name_of(r.dtype) << " " << rondo::name_of(op));
      CHECK(wrong(reduce_in_order(r, {0, 1, 2}), r) > 0);
      CHECK(wrong(reduce_in_order(r, {0, 1, 2, 3, 3}), r) > 0);
      Bytes good = reduce_in_order(r, {0, 1, 2, 3});
      std::rotate(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(rondo::size_of(r.dtype)), good.end());
      CHECK(wrong(good, r) > kCount / 8);
    }
  }
}

TEST_CASE("every wrong element is counted, and only those") {
  const Reduction r{DataType::f32, ReduceOp::sum, 3};
  Bytes bytes = reduce_in_order(r, {0, 1, 2});
  for (const std::size_t i : {0U, 511U, 512U, 1199U}) bytes[i * 4] ^= std::byte{1};
  CHECK(wrong(bytes, r) == 4);
}

TEST_CASE("bits to be moved depend on rank, index and seed, and are checked one by one") {
  for (const DataType dtype : {DataType::u8, DataType::f16, DataType::f32, DataType::f64}) {
    const std::size_t width = rondo::size_of(dtype);
    Bytes bytes(kCount * width);
    rondo::bench::fill_bits(bytes.data(), kCount, dtype, {2, 9, 1});
    CHECK(rondo::bench::count_wrong_bits(bytes.data(), kCount, dtype, {2, 9, 1}) == 0);
    CHECK(rondo::bench::count_wrong_bits(bytes.data() + width, kCount - 1, dtype, {2, 10, 1}) == 0);
    for (const Source& other : {Source{3, 9, 1}, Source{2, 10, 1}, Source{2, 9, 2}}) {
      CHECK(rondo::bench::count_wrong_bits(bytes.data(), kCount, dtype, other) > kCount * 9 / 10);
    }
    bytes.back() ^= std::byte{0x80};
    CHECK(rondo::bench::count_wrong_bits(bytes.data(), kCount, dtype, {2, 9, 1}) == 1);
  }
}

TEST_CASE("the sums of the checks are not all the same value") {
  const Reduction r{DataType::f32, ReduceOp::sum, 8};
  const Bytes bytes = reduce_in_order(r, {0, 1, 2, 3, 4, 5, 6, 7});
  std::vector<float> sums(kCount);
  std::memcpy(sums.data(), bytes.data(), bytes.size());
  CHECK(std::set<float>(sums.begin(), sums.end()).size() > kCount / 2);
}
