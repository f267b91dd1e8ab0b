// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/local_sgd.hpp>

#include <fmt/format.h>

#include <utility>

#include "trainer/arguments.hpp"

namespace rondo::trainer {
namespace {

class PostLocalSgd : public BucketHook {
 public:
  explicit PostLocalSgd(PostLocalSgdOptions options) : options_(options) {}

  std::string description() const override {
    return fmt::format("post_local_sgd from step {} {}", options_.start_step,
                       !options_.average_in_group  ? "without groups"
                       : options_.group == nullptr ? "in nodes"
                                                   : "in groups of the caller's");
  }
  void prepare(Communicator& communicator, std::span<const Bucket>) override {
    on_host_ = communicator.device().kind == Device::Kind::cpu;
    group_ = options_.group;
    if (!options_.average_in_group || group_ != nullptr) return;
    node_ = communicator.split(communicator.node(), communicator.rank());
    group_ = &node_;
  }
  Work start(Communicator& communicator, const Bucket& bucket) override {
    if (bucket.step < options_.start_step) return average(communicator, bucket, 0, bucket.count);
    Work work;
    marks_started_ = false;
    if (options_.average_in_group) work = average(*group_, bucket, 0, bucket.count - bucket.marks);
    if (!on_host_ && bucket.marks != 0) average_marks(communicator, bucket);
    return work;
  }
  std::optional<Work> proceed(Communicator& communicator, const Bucket& bucket) override {
    if (!on_host_ || bucket.step < options_.start_step) return std::nullopt;
    if (bucket.marks == 0 || std::exchange(marks_started_, true)) return std::nullopt;
    return average_marks(communicator, bucket);
  }
  void finish(const Bucket&) override {}

 private:
  Work average_marks(Communicator& communicator, const Bucket& bucket) {
    return average(communicator, bucket, bucket.count - bucket.marks, bucket.marks);
  }
  Work average(Communicator& over, const Bucket& bucket, std::size_t first, std::size_t count) const {
    if (count == 0) return {};
    std::byte* const data = bucket.data + first * size_of(bucket.dtype);
    if (on_host_) return over.async().all_reduce(data, data, count, bucket.dtype, ReduceOp::average);
    over.all_reduce(data, data, count, bucket.dtype, ReduceOp::average, bucket.stream);
    return {};
  }

  const PostLocalSgdOptions options_;
  bool on_host_ = true;
  bool marks_started_ = false;  // in this step
  Communicator node_;
  Communicator* group_ = nullptr;
};

}  // namespace

std::shared_ptr<BucketHook> post_local_sgd(PostLocalSgdOptions options) {
  return std::make_shared<PostLocalSgd>(options);
}

ModelAverager::ModelAverager(Communicator& communicator, AveragerOptions options)
    : communicator_(communicator), options_(options) {
  if (options_.period == 0)
    throw Error(ErrorCode::invalid_argument, "ModelAverager: the period is 0 steps; pass at least 1");
}

bool ModelAverager::after_step(std::span<const Parameter> parameters) {
  check_parameters("ModelAverager", parameters);
  for (const Parameter& p : parameters) {
    if (is_supported(p.dtype, ReduceOp::average) && !is_supported(p.dtype, ReduceOp::bit_and)) continue;
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("ModelAverager: '{}' is {}, whose average is no whole number; pass parameters of a floating "
                    "type alone",
                    p.name, name_of(p.dtype)));
  }
  const std::size_t step = steps_++;
  if (step < options_.start_step || (step - options_.start_step) % options_.period != 0) return false;
  Group group = communicator_.group();
  for (const Parameter& p : parameters) {
    if (p.count != 0) group.all_reduce(p.values, p.values, p.count, p.dtype, ReduceOp::average, options_.stream);
  }
  group.end();
  communicator_.synchronize(options_.stream);
  return true;
}

}  // namespace rondo::trainer
