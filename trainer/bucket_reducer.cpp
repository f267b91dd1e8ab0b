// SPDX-License-Identifier: Apache-2.0
#include "trainer/bucket_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace rondo::trainer {
namespace {

bool on_host(const Device& device) { return device.kind == Device::Kind::cpu; }

}  // namespace

BucketReducer::BucketReducer(Communicator& communicator, std::vector<Parameter>& parameters,
                             const SynchronizerOptions& options, std::vector<BucketPlan> buckets)
    : communicator_(communicator),
      parameters_(parameters),
      options_(options),
      buckets_(std::move(buckets)),
      device_(communicator.device()),
      packed_(on_host(device_) || options.gradients_in_buckets),
      roll_(parameters.size(), communicator.world_size(), buckets_.back().dtype),
      marks_here_(roll_.bytes()) {
  begin_step(0);
  if (options.hook && !packed_) {
    throw Error(ErrorCode::unsupported,
                "GradientSynchronizer: a hook on a device gets gradients that live in the buckets; set "
                "gradients_in_buckets");
  }
  if (!on_host(device_) && options_.stream != nullptr) clock_.emplace(device_, options_.stream);
  allocate();
  if (options_.gradients_in_buckets) place_gradients();
  if (options_.hook) {
    describe_parts();
    std::vector<Bucket> all;
    for (std::size_t i = 0; i < buckets_.size(); ++i) all.push_back(view(i));
    options_.hook->prepare(communicator_, all);
  }
}

BucketReducer::~BucketReducer() {
  try {
    for (Started& one : started_) one.work.wait();
    for (Started& one : later_) one.work.wait();
    if (!on_host(device_) && !started_.empty()) communicator_.synchronize(options_.stream);
  } catch (const std::exception&) {
    // the communicator has failed; the owner hears of it at its next call
  }
}

void BucketReducer::allocate() {
  std::vector<std::size_t> bytes(kDataTypeCount);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const BucketPlan& bucket = buckets_[i];
    std::size_t& end = bytes[static_cast<std::size_t>(bucket.dtype)];
    if (packed_) end = std::max(end, (bucket.start + bucket.count) * size_of(bucket.dtype));
    if (carries_marks(i)) end += roll_.bytes();  // it is the last of its type
  }
  for (const std::size_t count : bytes)
    memory_.push_back(count == 0 ? Window<std::byte>() : communicator_.allocate<std::byte>(count));
  if (on_host(device_)) return;
  const std::vector<char> used(parameters_.size(), 1);
  all_used_ = DeviceMemory(device_, RollCall::kSteps * roll_.bytes());
  for (std::size_t step = 0; step < RollCall::kSteps; ++step) {
    roll_.write(marks_here_, used, communicator_.rank(), step, false);
    all_used_.copy_from(marks_here_.data(), marks_here_.size(), step * roll_.bytes());
  }
}

void BucketReducer::place_gradients() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    for (const Piece& piece : buckets_[i].pieces) {
      if (piece.first == 0) parameters_[piece.parameter].gradient = place(i, piece);
    }
  }
}

std::size_t BucketReducer::bytes(const Piece& piece) const {
  return piece.count * size_of(parameters_[piece.parameter].dtype);
}
std::byte* BucketReducer::gradient(const Piece& piece) const {
  const Parameter& p = parameters_[piece.parameter];
  return static_cast<std::byte*>(p.gradient) + piece.first * size_of(p.dtype);
}
std::byte* BucketReducer::place(std::size_t bucket, const Piece& piece) const {
  if (!packed_) return gradient(piece);
  const BucketPlan& plan = buckets_[bucket];
  return memory_[static_cast<std::size_t>(plan.dtype)].data() + (plan.start + piece.offset) * size_of(plan.dtype);
}
std::span<std::byte> BucketReducer::marks() const {
  return memory_[static_cast<std::size_t>(buckets_.back().dtype)].span().last(roll_.bytes());
}
Bucket BucketReducer::view(std::size_t index) const {
  const BucketPlan& plan = buckets_[index];
  const std::size_t riders = carries_marks(index) ? roll_.count() : 0;
  return {.index = index,
          .data = memory_[static_cast<std::size_t>(plan.dtype)].data() + plan.start * size_of(plan.dtype),
          .count = plan.count + riders,
          .dtype = plan.dtype,
          .stream = options_.stream,
          .parts = parts_.empty() ? std::span<const BucketPart>() : parts_[index],
          .marks = riders,
          .step = step_};
}
void BucketReducer::describe_parts() {
  for (const BucketPlan& plan : buckets_) {
    std::vector<BucketPart>& parts = parts_.emplace_back();
    for (const Piece& piece : plan.pieces) {
      const Parameter& p = parameters_[piece.parameter];
      const std::span<const std::size_t> shape =
          p.shape ? std::span<const std::size_t>(*p.shape) : std::span<const std::size_t>(&p.count, 1);
      parts.push_back({piece.parameter, piece.first, piece.offset, piece.count, shape});
    }
  }
}

void BucketReducer::copy(void* to, const void* from, std::size_t count) const {
  if (count == 0 || to == from) return;
  if (on_host(device_)) {
    std::memcpy(to, from, count);
  } else {
    copy_on(device_, options_.stream, to, from, count);
  }
}
void BucketReducer::clear(void* to, std::size_t count) const {
  if (count == 0) return;
  if (on_host(device_)) {
    std::memset(to, 0, count);
  } else {
    fill_on(device_, options_.stream, to, 0, count);
  }
}

void BucketReducer::begin_step(std::size_t step) {
  step_ = step;
  started_.clear();
  later_.clear();
  if (clock_) clock_->begin_step();
  left_out_.clear();
  is_left_out_.assign(parameters_.size(), 0);
}

void BucketReducer::take(std::size_t bucket, const Piece& piece) {
  copy(place(bucket, piece), gradient(piece), bytes(piece));
}

void* BucketReducer::keep(const Piece& piece) {
  const Start key{piece.parameter, piece.first};
  if (on_host(device_)) {
    auto& memory = kept_[key];
    memory.resize(bytes(piece));
    return memory.data();
  }
  const auto found = kept_on_device_.find(key);
  if (found != kept_on_device_.end()) return found->second.data();
  return kept_on_device_.emplace(key, DeviceMemory(device_, bytes(piece))).first->second.data();
}

void BucketReducer::leave_out(std::size_t bucket, const Piece& piece) {
  std::byte* const here = place(bucket, piece);
  if (here == gradient(piece) && piece.count != 0) copy(keep(piece), here, bytes(piece));
  clear(here, bytes(piece));
  left_out_.emplace_back(bucket, piece);
  is_left_out_[piece.parameter] = 1;
}

void BucketReducer::mark(std::span<const char> used, std::size_t step, bool strayed) {
  if (on_host(device_)) return roll_.write(marks(), used, communicator_.rank(), step, strayed);
  if (step != RollCall::kAbsent && !strayed && std::find(used.begin(), used.end(), 0) == used.end()) {
    const auto* const kept = static_cast<const std::byte*>(all_used_.data());
    return copy(marks().data(), kept + step % RollCall::kSteps * roll_.bytes(), roll_.bytes());
  }
  roll_.write(marks_here_, used, communicator_.rank(), step, strayed);
  copy(marks().data(), marks_here_.data(), marks_here_.size());
}

void BucketReducer::start(std::size_t index) {
  const auto submitted = StepRecord::Clock::now();
  try {
    if (clock_) clock_->mark();
    started_.push_back({index, reduce(index), submitted});
    if (clock_) clock_->mark();
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::invalid_argument) throw;
    std::string names;
    for (const Piece& piece : buckets_[index].pieces)
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ", parameters_[piece.parameter].name);
    throw Error(error.error_code(), fmt::format("{} (gradients of {})", error.what(), names));
  }
}

Work BucketReducer::reduce(std::size_t index) {
  const Bucket bucket = view(index);
  if (options_.hook) return options_.hook->start(communicator_, bucket);
  if (on_host(device_))
    return communicator_.async().all_reduce(bucket.data, bucket.data, bucket.count, bucket.dtype, ReduceOp::average);
  Group group = communicator_.group();
  const auto add = [&](void* data, std::size_t count) {
    if (count != 0) group.all_reduce(data, data, count, bucket.dtype, ReduceOp::average, bucket.stream);
  };
  if (packed_) {
    add(bucket.data, bucket.count);
  } else {
    for (const Piece& piece : buckets_[index].pieces) add(gradient(piece), piece.count);
    if (carries_marks(index)) add(marks().data(), roll_.count());
  }
  group.end();
  return {};
}

void BucketReducer::go_on(Started one) {
  one.work.wait();
  if (!options_.hook) return;
  const auto submitted = StepRecord::Clock::now();
  std::optional<Work> next = options_.hook->proceed(communicator_, view(one.bucket));
  if (next) later_.push_back({one.bucket, std::move(*next), submitted});
}

RollCall::Answer BucketReducer::wait() {
  if (clock_) clock_->mark();
  if (!on_host(device_)) communicator_.synchronize(options_.stream);
  if (clock_) clock_->passed();
  // Buckets take turns, so that one's next collective runs while the hook calculates on another.
  for (const Started& one : started_) go_on(one);
  for (std::size_t i = 0; i < later_.size(); ++i) go_on(later_[i]);
  for (Started& one : started_) {
    if (options_.hook) options_.hook->finish(view(one.bucket));
    for (const Piece& piece : buckets_[one.bucket].pieces)
      if (!is_left_out_[piece.parameter]) copy(gradient(piece), place(one.bucket, piece), bytes(piece));
  }
  if (on_host(device_)) return roll_.read(marks());
  copy(marks_here_.data(), marks().data(), marks_here_.size());
  communicator_.synchronize(options_.stream);
  return roll_.read(marks_here_);
}

void BucketReducer::end_step(std::span<const char> used_somewhere) {
  for (const auto& [bucket, piece] : left_out_) {
    std::byte* const here = place(bucket, piece);
    if (used_somewhere[piece.parameter]) {
      copy(gradient(piece), here, bytes(piece));
    } else if (here == gradient(piece) && piece.count != 0) {
      copy(here, keep(piece), bytes(piece));
    }
  }
  if (!on_host(device_) && !left_out_.empty()) communicator_.synchronize(options_.stream);
}

std::size_t BucketReducer::reduced() const {
  if (!on_host(device_)) return 0;
  return static_cast<std::size_t>(
      std::count_if(started_.begin(), started_.end(), [](const Started& one) { return one.work.done(); }));
}

std::vector<BucketRecord> BucketReducer::records() const {
  std::vector<BucketRecord> all;
  for (const Started& one : started_) {
    const Bucket bucket = view(one.bucket);
    const Work::Times times =
        clock_ ? Work::Times{clock_->at(2 * all.size()), clock_->at(2 * all.size() + 1)} : one.work.times();
    all.push_back({one.bucket, bucket.count * size_of(bucket.dtype), one.submitted, times.started, times.finished});
  }
  for (const Started& one : later_) {
    const Work::Times times = one.work.times();
    all.push_back({one.bucket, 0, one.submitted, times.started, times.finished});
  }
  return all;
}

}  // namespace rondo::trainer
