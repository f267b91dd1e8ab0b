// SPDX-License-Identifier: Apache-2.0
#include "trainer/buckets.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace rondo::trainer {
namespace {

class Packer {
 public:
  explicit Packer(const SynchronizerOptions& options) : options_(options) {}

  void add(std::size_t index, const Parameter& parameter) {
    std::size_t first = 0;
    do {
      const std::size_t rest = parameter.count - first;
      BucketPlan& open = open_[static_cast<std::size_t>(parameter.dtype)];
      open.dtype = parameter.dtype;
      if (!open.pieces.empty() && rest > capacity(parameter.dtype) - open.count) close(open);
      const std::size_t count = std::min(rest, capacity(parameter.dtype));
      open.pieces.push_back({index, first, open.count, count});
      open.count += count;
      first += count;
      if (open.count == capacity(parameter.dtype)) close(open);
    } while (first < parameter.count);
  }

  std::vector<BucketPlan> end() && {
    const auto last = [](const BucketPlan& bucket) {
      return bucket.pieces.empty() ? 0 : bucket.pieces.back().parameter;
    };
    std::sort(open_.begin(), open_.end(), [&](const auto& a, const auto& b) { return last(a) > last(b); });
    for (BucketPlan& open : open_) {
      if (!open.pieces.empty()) close(open);
    }
    return std::move(closed_);
  }

 private:
  // The first bucket of all is the small one.
  std::size_t capacity(DataType dtype) const {
    return (closed_.empty() ? options_.first_bucket_bytes : options_.bucket_bytes) / size_of(dtype);
  }
  void close(BucketPlan& open) { closed_.push_back(std::exchange(open, {.dtype = open.dtype})); }

  SynchronizerOptions options_;
  std::array<BucketPlan, kDataTypeCount> open_{};
  std::vector<BucketPlan> closed_;
};

}  // namespace

std::vector<BucketPlan> plan_buckets(const std::vector<Parameter>& parameters, const SynchronizerOptions& options) {
  Packer packer(options);
  for (std::size_t i = parameters.size(); i-- > 0;) packer.add(i, parameters[i]);
  return std::move(packer).end();
}

}  // namespace rondo::trainer
