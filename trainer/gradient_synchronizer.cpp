// SPDX-License-Identifier: Apache-2.0
// The calling threads copy gradients into buckets and start full ones; the communicator's engine thread reduces them.
// `mutex_` guards the bookkeeping and every call of the communicator; gradients are copied outside it.
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <mutex>

#include "trainer/agreement.hpp"
#include "trainer/buckets.hpp"

namespace rondo::trainer {
namespace {

// Missing gradients that an error lists before it only counts them.
constexpr std::size_t kMaxNames = 4;

void check_parameters(const std::vector<Parameter>& parameters, const SynchronizerOptions& options) {
  for (const Parameter& p : parameters) {
    if (!is_supported(p.dtype, ReduceOp::average) || is_supported(p.dtype, ReduceOp::bit_and)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("GradientSynchronizer: parameter '{}' is {}; gradients have a floating type", p.name,
                              name_of(p.dtype)));
    }
    if (p.gradient == nullptr && p.count != 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("GradientSynchronizer: parameter '{}' has no gradient array; pass one of {} elements",
                              p.name, p.count));
    }
  }
  if (options.first_bucket_bytes < sizeof(double) || options.bucket_bytes < sizeof(double)) {
    throw Error(ErrorCode::invalid_argument, "GradientSynchronizer: a bucket must hold at least 8 bytes");
  }
}

}  // namespace

class GradientSynchronizer::Impl {
 public:
  Impl(Communicator& communicator, std::vector<Parameter> parameters, SynchronizerOptions options);
  ~Impl();
  void ready(std::size_t index);
  void finish();
  Progress progress() const;

 private:
  struct Bucket {
    BucketPlan plan;
    Window<std::byte> memory;
    std::size_t missing = 0;  // pieces not yet copied in, this step
    Work work;
  };

  struct Place {
    std::size_t bucket;
    Piece piece;
  };

  void copy_in(const Place& place) const;
  void copy_out(const Bucket& bucket) const;
  void start_full_buckets();  // with mutex_ held
  void check_all_ready() const;
  void begin_step();
  std::byte* gradient(const Piece& piece) const;

  Communicator& communicator_;
  const std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<Place>> places_;  // by parameter

  mutable std::mutex mutex_;
  std::vector<char> ready_;
  std::size_t ready_count_ = 0;
  std::size_t started_ = 0;
  std::size_t steps_ = 0;
  double exposed_seconds_ = 0;
};

GradientSynchronizer::Impl::Impl(Communicator& communicator, std::vector<Parameter> parameters,
                                 SynchronizerOptions options)
    : communicator_(communicator), parameters_(std::move(parameters)), places_(parameters_.size()) {
  check_parameters(parameters_, options);
  check_agreement(communicator_, parameters_, options);
  for (BucketPlan& plan : plan_buckets(parameters_, options)) {
    Bucket bucket;
    bucket.plan = std::move(plan);
    bucket.memory = communicator_.allocate<std::byte>(bucket.plan.count * size_of(bucket.plan.dtype));
    for (const Piece& piece : bucket.plan.pieces) places_[piece.parameter].push_back({buckets_.size(), piece});
    buckets_.push_back(std::move(bucket));
  }
  begin_step();
  if (!options.broadcast_parameters) return;
  for (const Parameter& p : parameters_) {
    if (p.values != nullptr) communicator_.broadcast(p.values, p.values, p.count, p.dtype, 0);
  }
}

GradientSynchronizer::Impl::~Impl() {
  for (std::size_t i = 0; i < started_; ++i) {
    try {
      buckets_[i].work.wait();
    } catch (const std::exception&) {
      return;  // the communicator has failed; the owner hears of it at its next call
    }
  }
}

void GradientSynchronizer::Impl::begin_step() {
  ready_.assign(parameters_.size(), 0);
  ready_count_ = 0;
  started_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.plan.pieces.size();
}

std::byte* GradientSynchronizer::Impl::gradient(const Piece& piece) const {
  const Parameter& p = parameters_[piece.parameter];
  return static_cast<std::byte*>(p.gradient) + piece.first * size_of(p.dtype);
}

void GradientSynchronizer::Impl::copy_in(const Place& place) const {
  if (place.piece.count == 0) return;
  const Bucket& bucket = buckets_[place.bucket];
  const std::size_t width = size_of(bucket.plan.dtype);
  std::memcpy(bucket.memory.data() + place.piece.offset * width, gradient(place.piece), place.piece.count * width);
}

void GradientSynchronizer::Impl::copy_out(const Bucket& bucket) const {
  const std::size_t width = size_of(bucket.plan.dtype);
  for (const Piece& piece : bucket.plan.pieces) {
    if (piece.count == 0) continue;
    std::memcpy(gradient(piece), bucket.memory.data() + piece.offset * width, piece.count * width);
  }
}

void GradientSynchronizer::Impl::ready(std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    if (index >= parameters_.size()) {
      throw Error(ErrorCode::invalid_argument, fmt::format("rank {}: there is no parameter {}; {} are registered",
                                                           communicator_.rank(), index, parameters_.size()));
    }
    if (ready_[index]) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank {}: the gradient of parameter '{}' was made ready twice in step {}; call finish() "
                              "after every backward pass",
                              communicator_.rank(), parameters_[index].name, steps_));
    }
    ready_[index] = 1;
  }
  for (const Place& place : places_[index]) copy_in(place);
  const std::lock_guard lock(mutex_);
  ++ready_count_;
  for (const Place& place : places_[index]) --buckets_[place.bucket].missing;
  start_full_buckets();
}

void GradientSynchronizer::Impl::start_full_buckets() {
  for (; started_ < buckets_.size() && buckets_[started_].missing == 0; ++started_) {
    Bucket& bucket = buckets_[started_];
    bucket.work = communicator_.async().all_reduce(bucket.memory.data(), bucket.memory.data(), bucket.plan.count,
                                                   bucket.plan.dtype, ReduceOp::average);
  }
}

void GradientSynchronizer::Impl::check_all_ready() const {
  const std::lock_guard lock(mutex_);
  if (ready_count_ == parameters_.size()) return;
  std::string names;
  std::size_t listed = 0;
  for (std::size_t i = 0; i < parameters_.size() && listed < kMaxNames; ++i) {
    if (!ready_[i]) names += fmt::format("{}'{}'", listed++ == 0 ? "" : ", ", parameters_[i].name);
  }
  const std::size_t missing = parameters_.size() - ready_count_;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("rank {}: finish() of step {} came before the gradients of {} of {} parameters were ready: "
                  "{}{}; call ready() for every parameter, with zeros for an unused one",
                  communicator_.rank(), steps_, missing, parameters_.size(), names, missing > listed ? ", ..." : ""));
}

void GradientSynchronizer::Impl::finish() {
  check_all_ready();
  const auto begin = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
    start_full_buckets();  // a start that threw in ready() throws again
  }
  for (Bucket& bucket : buckets_) {
    bucket.work.wait();
    copy_out(bucket);
  }
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  const std::lock_guard lock(mutex_);
  exposed_seconds_ += waited.count();
  ++steps_;
  begin_step();
}

GradientSynchronizer::Progress GradientSynchronizer::Impl::progress() const {
  const std::lock_guard lock(mutex_);
  Progress p{.ready = ready_count_, .parameters = parameters_.size(), .started = started_, .buckets = buckets_.size()};
  for (std::size_t i = 0; i < started_; ++i) p.reduced += buckets_[i].work.done();
  p.steps = steps_;
  p.exposed_seconds = exposed_seconds_;
  return p;
}

GradientSynchronizer::GradientSynchronizer(Communicator& communicator, std::vector<Parameter> parameters,
                                           SynchronizerOptions options)
    : impl_(std::make_unique<Impl>(communicator, std::move(parameters), options)) {}
GradientSynchronizer::~GradientSynchronizer() = default;
void GradientSynchronizer::ready(std::size_t index) { impl_->ready(index); }
void GradientSynchronizer::finish() { impl_->finish(); }
GradientSynchronizer::Progress GradientSynchronizer::progress() const { return impl_->progress(); }

}  // namespace rondo::trainer
