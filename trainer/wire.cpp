// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/wire.hpp>

#include <fmt/format.h>

#include <bit>
#include <vector>

#include "trainer/convert.hpp"

namespace rondo::trainer {
namespace {

class Compression : public BucketHook {
 public:
  explicit Compression(DataType wire) : wire_(wire) {}

  void prepare(Communicator& communicator, std::span<const Bucket> buckets) override {
    if (communicator.device().kind != Device::Kind::cpu) {
      throw Error(ErrorCode::invalid_argument,
                  "compress_to: gradients are in device memory, which only a hook of your own could convert");
    }
    const auto ranks = static_cast<unsigned>(communicator.world_size());
    scale_ = 1.0 / std::bit_ceil(ranks);
    divisor_ = ranks * scale_;
    memory_.clear();
    for (const Bucket& bucket : buckets)
      memory_.push_back(is_wide(bucket) ? communicator.allocate<std::uint16_t>(bucket.count) : Window<std::uint16_t>());
  }
  Work start(Communicator& communicator, const Bucket& bucket) override {
    if (!is_wide(bucket))
      return communicator.async().all_reduce(bucket.data, bucket.data, bucket.count, bucket.dtype, ReduceOp::average);
    std::uint16_t* const wire = memory_[bucket.index].data();
    narrow(bucket, wire);
    return communicator.async().all_reduce(wire, wire, bucket.count, wire_, ReduceOp::sum);
  }
  void finish(const Bucket& bucket) override {
    if (is_wide(bucket)) widen(memory_[bucket.index].data(), bucket);
  }

 private:
  static bool is_wide(const Bucket& b) { return b.dtype == DataType::f32 || b.dtype == DataType::f64; }
  void narrow(const Bucket& bucket, std::uint16_t* wire) const {
    if (bucket.dtype == DataType::f32) {
      convert::narrow(reinterpret_cast<const float*>(bucket.data), wire, bucket.count, scale_, wire_);
    } else {
      convert::narrow(reinterpret_cast<const double*>(bucket.data), wire, bucket.count, scale_, wire_);
    }
  }
  void widen(const std::uint16_t* wire, const Bucket& bucket) const {
    if (bucket.dtype == DataType::f32) {
      convert::widen(wire, reinterpret_cast<float*>(bucket.data), bucket.count, divisor_, wire_);
    } else {
      convert::widen(wire, reinterpret_cast<double*>(bucket.data), bucket.count, divisor_, wire_);
    }
  }

  const DataType wire_;
  // Of the sum, which is then divided by the rest: a power of two, which takes nothing from a value but the last bits
  // of the smallest, and so small that no sum of some ranks' values, however it is rounded, is larger than the largest.
  double scale_ = 1;
  double divisor_ = 1;
  std::vector<Window<std::uint16_t>> memory_;
};

}  // namespace

std::shared_ptr<BucketHook> compress_to(DataType wire) {
  if (wire != DataType::f16 && wire != DataType::bf16) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("compress_to: {} is no wire type; choose f16 or bf16", name_of(wire)));
  }
  return std::make_shared<Compression>(wire);
}

}  // namespace rondo::trainer
