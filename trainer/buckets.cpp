// SPDX-License-Identifier: Apache-2.0
#include "trainer/buckets.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rondo::trainer {
namespace {

constexpr std::size_t kWindowAlignment = 64;  // bytes: what windows have

class Packer {
 public:
  explicit Packer(const SynchronizerOptions& options) : options_(options) {}

  void add(std::size_t index, const Parameter& parameter) {
    ++added_;
    std::size_t first = 0;
    do {
      const std::size_t rest = parameter.count - first;
      Open& open = open_[static_cast<std::size_t>(parameter.dtype)];
      BucketPlan& plan = open.plan;
      plan.dtype = parameter.dtype;
      if (!plan.pieces.empty() && rest > capacity(parameter.dtype) - plan.count) close(open);
      const std::size_t count = std::min(rest, capacity(parameter.dtype));
      plan.pieces.push_back({index, first, plan.count, count});
      plan.count += count;
      first += count;
      open.filled_at = added_;
      if (plan.count == capacity(parameter.dtype)) close(open);
    } while (first < parameter.count);
  }

  std::vector<BucketPlan> end() && {
    std::sort(open_.begin(), open_.end(), [](const Open& a, const Open& b) { return a.filled_at < b.filled_at; });
    for (Open& open : open_) {
      if (!open.plan.pieces.empty()) close(open);
    }
    return std::move(closed_);
  }

 private:
  struct Open {
    BucketPlan plan;
    std::size_t filled_at = 0;  // parameters added by then
    std::size_t end = 0;        // elements of closed buckets of this dtype
  };

  // The first bucket of all is the small one.
  std::size_t capacity(DataType dtype) const {
    return (closed_.empty() ? options_.first_bucket_bytes : options_.bucket_bytes) / size_of(dtype);
  }
  // A bucket that goes on with a parameter begins where the one before ended, any other at an aligned place.
  void close(Open& open) {
    const std::size_t grain = open.plan.pieces.front().first == 0 ? kWindowAlignment / size_of(open.plan.dtype) : 1;
    open.plan.start = (open.end + grain - 1) / grain * grain;
    open.end = open.plan.start + open.plan.count;
    closed_.push_back(std::exchange(open.plan, {.dtype = open.plan.dtype}));
  }

  const SynchronizerOptions& options_;
  std::array<Open, kDataTypeCount> open_{};
  std::size_t added_ = 0;
  std::vector<BucketPlan> closed_;
};

}  // namespace

std::vector<std::size_t> reverse_order(std::size_t parameters) {
  std::vector<std::size_t> order(parameters);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::vector<BucketPlan> plan_buckets(const std::vector<Parameter>& parameters, const SynchronizerOptions& options,
                                     std::span<const std::size_t> order) {
  Packer packer(options);
  for (const std::size_t i : order) packer.add(i, parameters[i]);
  return std::move(packer).end();
}

std::vector<std::size_t> order_of_filling(const std::vector<BucketPlan>& buckets, std::span<const std::size_t> order) {
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  const auto filled_at = [&](std::size_t bucket) {
    std::size_t latest = 0;
    for (const Piece& piece : buckets[bucket].pieces) latest = std::max(latest, place[piece.parameter]);
    return latest;
  };
  std::vector<std::size_t> result(buckets.size());
  std::iota(result.begin(), result.end(), std::size_t{0});
  std::stable_sort(result.begin(), result.end() - 1,
                   [&](std::size_t a, std::size_t b) { return filled_at(a) < filled_at(b); });
  return result;
}

}  // namespace rondo::trainer
