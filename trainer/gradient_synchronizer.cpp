// SPDX-License-Identifier: Apache-2.0
// The calling threads hand gradients to the reducer and start full buckets in order. `mutex_` guards the bookkeeping
// and every call of the communicator; gradients are taken (on the CPU: copied) outside it.
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <fmt/format.h>

#include <chrono>
#include <mutex>

#include "trainer/agreement.hpp"
#include "trainer/bucket_reducer.hpp"

namespace rondo::trainer {
namespace {

// Missing gradients that an error lists before it only counts them.
constexpr std::size_t kMaxNames = 4;

std::vector<Parameter> checked(std::vector<Parameter> parameters, const SynchronizerOptions& options) {
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
  return parameters;
}

}  // namespace

class GradientSynchronizer::Impl {
 public:
  Impl(Communicator& communicator, std::vector<Parameter> parameters, SynchronizerOptions options);
  void ready(std::size_t index);
  void finish();
  Progress progress() const;

 private:
  struct Place {
    std::size_t bucket;
    Piece piece;
  };

  void start_full_buckets();  // with mutex_ held
  void broadcast_values(Stream stream);
  void check_all_ready() const;
  void begin_step();

  Communicator& communicator_;
  const std::vector<Parameter> parameters_;
  const std::vector<BucketPlan> buckets_;
  std::vector<std::vector<Place>> places_;  // by parameter
  std::unique_ptr<BucketReducer> reducer_;

  mutable std::mutex mutex_;
  std::vector<char> ready_;
  std::vector<std::size_t> missing_;  // by bucket: pieces not yet taken, this step
  std::size_t ready_count_ = 0;
  std::size_t started_ = 0;
  std::size_t steps_ = 0;
  double exposed_seconds_ = 0;
};

GradientSynchronizer::Impl::Impl(Communicator& communicator, std::vector<Parameter> parameters,
                                 SynchronizerOptions options)
    : communicator_(communicator),
      parameters_(checked(std::move(parameters), options)),
      buckets_(plan_buckets(parameters_, options)),
      places_(parameters_.size()) {
  check_agreement(communicator_, parameters_, options);
  reducer_ = BucketReducer::make(communicator_, parameters_, buckets_, options.stream);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (const Piece& piece : buckets_[bucket].pieces) places_[piece.parameter].push_back({bucket, piece});
  }
  begin_step();
  if (options.broadcast_parameters) broadcast_values(options.stream);
}

void GradientSynchronizer::Impl::broadcast_values(Stream stream) {
  for (const Parameter& p : parameters_) {
    if (p.values != nullptr) communicator_.broadcast(p.values, p.values, p.count, p.dtype, 0, stream);
  }
  communicator_.synchronize(stream);
}

void GradientSynchronizer::Impl::begin_step() {
  ready_.assign(parameters_.size(), 0);
  ready_count_ = 0;
  started_ = 0;
  reducer_->begin_step();
  missing_.clear();
  for (const BucketPlan& bucket : buckets_) missing_.push_back(bucket.pieces.size());
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
  for (const Place& place : places_[index]) reducer_->take(place.bucket, place.piece);
  const std::lock_guard lock(mutex_);
  ++ready_count_;
  for (const Place& place : places_[index]) --missing_[place.bucket];
  start_full_buckets();
}

void GradientSynchronizer::Impl::start_full_buckets() {
  for (; started_ < buckets_.size() && missing_[started_] == 0; ++started_) reducer_->start(started_);
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
  reducer_->finish();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  const std::lock_guard lock(mutex_);
  exposed_seconds_ += waited.count();
  ++steps_;
  begin_step();
}

GradientSynchronizer::Progress GradientSynchronizer::Impl::progress() const {
  const std::lock_guard lock(mutex_);
  Progress p{.ready = ready_count_, .parameters = parameters_.size(), .started = started_, .buckets = buckets_.size()};
  p.reduced = reducer_->reduced();
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
