// SPDX-License-Identifier: Apache-2.0
// The calling threads hand gradients to the reducer and start full buckets in order. `mutex_` guards the bookkeeping
// and every call of the communicator; gradients are taken (on the CPU: copied) outside it.
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "trainer/agreement.hpp"
#include "trainer/arguments.hpp"
#include "trainer/bucket_reducer.hpp"

namespace rondo::trainer {
namespace {

using Clock = StepRecord::Clock;

// Two that share memory would be averaged twice.
void check_apart(const std::vector<Parameter>& parameters) {
  std::map<const std::byte*, const Parameter*, std::less<>> by_address;
  for (const Parameter& p : parameters) {
    if (p.gradient == nullptr || p.count == 0) continue;
    const auto* const begin = static_cast<const std::byte*>(p.gradient);
    const auto next = by_address.lower_bound(begin);
    const auto refuse = [&](const Parameter& other) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("GradientSynchronizer: parameters '{}' and '{}' share gradient memory; register a "
                              "parameter that is used twice once",
                              other.name, p.name));
    };
    if (next != by_address.end() && next->first < begin + p.count * size_of(p.dtype)) refuse(*next->second);
    if (next != by_address.begin()) {
      const auto& [address, before] = *std::prev(next);
      if (begin < address + before->count * size_of(before->dtype)) refuse(*before);
    }
    by_address.emplace(begin, &p);
  }
}

void check(const std::vector<Parameter>& parameters, const SynchronizerOptions& options) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "GradientSynchronizer: " + why);
  };
  if (parameters.empty()) refuse("there are no parameters to train");
  check_parameters("GradientSynchronizer", parameters);
  check_parameters("GradientSynchronizer", options.buffers);
  for (const Parameter& p : parameters) {
    if (!is_supported(p.dtype, ReduceOp::average) || is_supported(p.dtype, ReduceOp::bit_and)) {
      refuse(fmt::format("parameter '{}' is {}; gradients have a floating type", p.name, name_of(p.dtype)));
    }
    if (options.gradients_in_buckets && p.gradient != nullptr) {
      refuse(fmt::format("parameter '{}' has a gradient array, but gradients live in the buckets; pass null", p.name));
    }
    if (!options.gradients_in_buckets && p.gradient == nullptr && p.count != 0) {
      refuse(fmt::format("parameter '{}' has no gradient array; pass one of {} elements", p.name, p.count));
    }
  }
  if (options.first_bucket_bytes < sizeof(double) || options.bucket_bytes < sizeof(double)) {
    refuse("a bucket must hold at least 8 bytes");
  }
  check_apart(parameters);
}

}  // namespace

class GradientSynchronizer::Impl {
 public:
  Impl(Communicator& communicator, std::vector<Parameter> parameters, SynchronizerOptions options);
  ~Impl();
  void ready(std::size_t index);
  void finish();
  bool join_step();
  bool pause(bool on);
  void move_buffer(std::size_t index, void* values);
  Progress progress() const;

  std::vector<Parameter> parameters_;  // the reducer fills in the places of gradients that live in buckets
  std::vector<std::size_t> unused_here_, unused_everywhere_;
  StepRecord record_;
  Statistics statistics_;
  Clock::time_point forward_{}, backward_{};  // of the step to come
  std::optional<std::uint64_t> batch_{};      // the caller's number of it

 private:
  struct BucketPiece {
    std::size_t bucket;
    Piece piece;
  };
  enum class State : char { waiting, taking, ready };

  void lay_out(std::span<const std::size_t> order);
  void start_full_buckets();  // with mutex_ held
  void claim(std::size_t index);
  void leave_out_the_rest();
  RollCall::Answer run_step();
  void end_step();
  void check_same_step(const RollCall::Answer& answer);
  void check_same_graph(const RollCall::Answer& answer);
  std::vector<char> used_here() const;
  void note_usage(const RollCall::Answer& answer);
  void learn_order();
  void broadcast(const std::vector<Parameter>& tensors, int root);
  void begin_step();
  [[noreturn]] void explain(const Error& error) const;
  // What ranks compare: the caller's number, else how often finish() was called, which a skipped step does not change.
  std::size_t number() const { return static_cast<std::size_t>(batch_.value_or(steps_)); }

  Communicator& communicator_;
  SynchronizerOptions options_;  // buffers may move
  std::unique_ptr<BucketReducer> reducer_;
  std::vector<std::size_t> start_order_;                 // of buckets
  std::vector<std::vector<BucketPiece>> bucket_pieces_;  // by parameter

  mutable std::mutex mutex_;
  bool paused_ = false;
  bool joined_ = false;
  bool all_know_ = false;  // every rank throws the same: nobody waits for this one
  std::vector<State> states_;
  std::vector<char> used_before_;         // under no_sync() since the last step
  std::vector<char> graph_;               // static: what this rank used in its first step; empty before it
  std::vector<std::size_t> missing_;      // by bucket: pieces not yet taken, this step
  std::vector<std::size_t> ready_order_;  // of this step
  std::size_t ready_count_ = 0;           // taken
  std::size_t started_ = 0;
  std::size_t steps_ = 0;
};

GradientSynchronizer::Impl::Impl(Communicator& communicator, std::vector<Parameter> parameters,
                                 SynchronizerOptions options)
    : parameters_(std::move(parameters)),
      communicator_(communicator),
      options_(std::move(options)),
      used_before_(parameters_.size()) {
  check(parameters_, options_);
  check_agreement(communicator_, parameters_, options_);
  lay_out(reverse_order(parameters_.size()));
  if (options_.broadcast_parameters) {
    broadcast(parameters_, 0);
    broadcast(options_.buffers, 0);
  }
  forward_ = Clock::now();
  begin_step();
}

GradientSynchronizer::Impl::~Impl() {
  if (!paused_ && !ready_order_.empty() && !all_know_) {
    try {
      communicator_.abort();
    } catch (const std::exception&) {
      // it is not there any more, or has failed: the others know already
    }
  }
}

// Collective. Gradients that live in the buckets stay where they are, and then only the order of the buckets changes.
void GradientSynchronizer::Impl::lay_out(std::span<const std::size_t> order) {
  if (!reducer_ || !options_.gradients_in_buckets) {
    auto plans = plan_buckets(parameters_, options_, order);
    reducer_.reset();
    reducer_ = std::make_unique<BucketReducer>(communicator_, parameters_, options_, std::move(plans));
    bucket_pieces_.assign(parameters_.size(), {});
    for (std::size_t bucket = 0; bucket < reducer_->buckets().size(); ++bucket) {
      for (const Piece& piece : reducer_->buckets()[bucket].pieces)
        bucket_pieces_[piece.parameter].push_back({bucket, piece});
    }
  }
  start_order_ = order_of_filling(reducer_->buckets(), order);
}

void GradientSynchronizer::Impl::broadcast(const std::vector<Parameter>& tensors, int root) {
  for (const Parameter& p : tensors) {
    if (p.values != nullptr) communicator_.broadcast(p.values, p.values, p.count, p.dtype, root, options_.stream);
  }
  communicator_.synchronize(options_.stream);
}

void GradientSynchronizer::Impl::begin_step() {
  states_.assign(parameters_.size(), State::waiting);
  ready_order_.clear();
  ready_count_ = 0;
  started_ = 0;
  backward_ = {};
  reducer_->begin_step(steps_);
  missing_.clear();
  for (const BucketPlan& bucket : reducer_->buckets()) missing_.push_back(bucket.pieces.size());
}

void GradientSynchronizer::Impl::claim(std::size_t index) {
  if (index >= parameters_.size()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("rank {}: there is no parameter {}; {} are registered",
                                                         communicator_.rank(), index, parameters_.size()));
  }
  if (states_[index] != State::waiting) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {}: the gradient of parameter '{}' was made ready twice in step {}; call finish() "
                            "after every backward pass",
                            communicator_.rank(), parameters_[index].name, steps_));
  }
  if (ready_order_.empty() && backward_ == Clock::time_point{}) backward_ = Clock::now();
  states_[index] = paused_ ? State::ready : State::taking;
  if (paused_) used_before_[index] = 1;
  ready_order_.push_back(index);
}

void GradientSynchronizer::Impl::ready(std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    claim(index);
    if (paused_) return;
  }
  for (const BucketPiece& part : bucket_pieces_[index]) reducer_->take(part.bucket, part.piece);
  const std::lock_guard lock(mutex_);
  states_[index] = State::ready;
  ++ready_count_;
  for (const BucketPiece& part : bucket_pieces_[index]) --missing_[part.bucket];
  try {
    start_full_buckets();
  } catch (const Error& error) {
    explain(error);
  }
}

void GradientSynchronizer::Impl::start_full_buckets() {
  for (; started_ < start_order_.size() && missing_[start_order_[started_]] == 0; ++started_) {
    if (started_ + 1 == start_order_.size()) {
      const std::vector<char> used = used_here();
      const bool strayed = !joined_ && !graph_.empty() && used != graph_;
      reducer_->mark(used, joined_ ? RollCall::kAbsent : number(), strayed);
    }
    reducer_->start(start_order_[started_]);
  }
}

std::vector<char> GradientSynchronizer::Impl::used_here() const {
  std::vector<char> used(parameters_.size());
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = states_[i] == State::ready ? 1 : 0;
  return used;
}

// What was used under no_sync() has a gradient, even if this backward pass did not add to it.
void GradientSynchronizer::Impl::leave_out_the_rest() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (states_[i] == State::ready) continue;
    if (states_[i] == State::taking) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank {}: finish() of step {} was called while ready() of parameter '{}' was running; "
                              "wait for the threads of the backward pass first",
                              communicator_.rank(), steps_, parameters_[i].name));
    }
    for (const BucketPiece& part : bucket_pieces_[i]) {
      if (used_before_[i]) reducer_->take(part.bucket, part.piece);
      if (!used_before_[i]) reducer_->leave_out(part.bucket, part.piece);
      --missing_[part.bucket];
    }
    if (used_before_[i]) states_[i] = State::ready;
  }
}

RollCall::Answer GradientSynchronizer::Impl::run_step() {
  const auto now = Clock::now();
  record_ = {.step = steps_, .forward = forward_, .backward = now, .finish = now};
  try {
    {
      const std::lock_guard lock(mutex_);
      if (backward_ != Clock::time_point{}) record_.backward = backward_;
      leave_out_the_rest();
      start_full_buckets();
    }
    RollCall::Answer answer = reducer_->wait();
    record_.buckets = reducer_->records();
    check_same_step(answer);
    check_same_graph(answer);
    if (options_.static_graph && !joined_ && graph_.empty()) graph_ = used_here();
    reducer_->end_step(answer.used);
    if (!answer.present.empty()) {
      note_usage(answer);
      if (options_.broadcast_buffers_each_step) broadcast(options_.buffers, answer.present.front());
      if (steps_ == 0) learn_order();
    }
    return answer;
  } catch (const Error& error) {
    explain(error);
  }
}

void GradientSynchronizer::Impl::explain(const Error& error) const {
  if (error.error_code() == ErrorCode::invalid_argument) throw;
  throw Error(
      error.error_code(),
      fmt::format("{}; this was step {} of a GradientSynchronizer, where every rank calls finish() once after each "
                  "backward pass, and join() when its batches end before others'",
                  error.what(), steps_),
      error.culprit());
}

// The marks are the same on all ranks, so all of them exchange their exact numbers, or none.
void GradientSynchronizer::Impl::check_same_step(const RollCall::Answer& answer) {
  if (answer.same_step) return;
  const std::size_t mine = number();
  const auto all = communicator_.all_gather_bytes(std::as_bytes(std::span(&mine, 1)));
  std::map<std::size_t, std::vector<int>> ranks_in;
  for (const int rank : answer.present) {
    std::size_t step = 0;
    std::memcpy(&step, all[static_cast<std::size_t>(rank)].data(), sizeof step);
    ranks_in[step].push_back(rank);
  }
  std::string places;
  for (const auto& [step, ranks] : ranks_in)
    places += fmt::format("{}step {} of rank{} {}", places.empty() ? "" : ", ", step, ranks.size() == 1 ? "" : "s",
                          fmt::join(ranks, ", "));
  all_know_ = true;
  const auto fewest = std::min_element(ranks_in.begin(), ranks_in.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  throw Error(
      ErrorCode::mismatch,
      fmt::format("rank {}: gradients of different steps have met: {}; no rank may skip a step that others make",
                  communicator_.rank(), places),
      fewest->second.front());
}

// As above: the mark is the same on all ranks. What changed, from every rank, as an index and whether it is used now.
void GradientSynchronizer::Impl::check_same_graph(const RollCall::Answer& answer) {
  if (!answer.strayed) return;
  std::vector<std::uint64_t> changed;
  const std::vector<char> used = used_here();
  for (std::size_t i = 0; i < used.size() && !joined_ && !graph_.empty(); ++i) {
    if (used[i] != graph_[i]) changed.push_back(2 * i + (used[i] != 0 ? 1 : 0));
  }
  const auto all = communicator_.all_gather_bytes(std::as_bytes(std::span(changed)));
  std::string sentence;
  int culprit = -1;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    changed.resize(all[rank].size() / sizeof(std::uint64_t));
    if (changed.empty()) continue;
    std::memcpy(changed.data(), all[rank].data(), all[rank].size());
    std::vector<std::string> names;
    for (const std::uint64_t one : changed)
      names.push_back(fmt::format("'{}' ({})", parameters_[one / 2].name, one % 2 != 0 ? "now used" : "now unused"));
    if (culprit < 0) culprit = static_cast<int>(rank);
    sentence += fmt::format("{}rank {}: {}", sentence.empty() ? "" : "; ", rank, fmt::join(names, ", "));
  }
  all_know_ = true;
  throw Error(ErrorCode::mismatch,
              fmt::format("the graph is static, but other parameters are used than in the first step, on {}; make the "
                          "synchronizer without static_graph",
                          sentence),
              culprit);
}

void GradientSynchronizer::Impl::note_usage(const RollCall::Answer& answer) {
  unused_here_.clear();
  unused_everywhere_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (states_[i] != State::ready) unused_here_.push_back(i);
    if (!answer.used[i]) unused_everywhere_.push_back(i);
  }
}

// Rank 0's, so that all agree; what it did not use comes last, where its bucket holds up no other.
void GradientSynchronizer::Impl::learn_order() {
  std::vector<std::uint64_t> order;
  if (communicator_.rank() == 0) {
    order.assign(ready_order_.begin(), ready_order_.end());
    for (const std::size_t i : reverse_order(parameters_.size())) {
      if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
    }
  }
  const auto bytes = communicator_.all_gather_bytes(std::as_bytes(std::span(order))).front();
  order.resize(parameters_.size());
  std::memcpy(order.data(), bytes.data(), bytes.size());
  lay_out(std::vector<std::size_t>(order.begin(), order.end()));
}

void GradientSynchronizer::Impl::end_step() {
  record_.end = Clock::now();
  const std::lock_guard lock(mutex_);
  statistics_.add(record_);
  std::fill(used_before_.begin(), used_before_.end(), char{0});
  ++steps_;
  batch_.reset();
  begin_step();
  forward_ = record_.end;
}

void GradientSynchronizer::Impl::finish() {
  if (paused_) {
    const std::lock_guard lock(mutex_);
    states_.assign(parameters_.size(), State::waiting);
    ready_order_.clear();
    return;
  }
  run_step();
  end_step();
}

bool GradientSynchronizer::Impl::join_step() {
  if (paused_ || !ready_order_.empty()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {}: join() in the middle of step {}; call finish() for this rank's last batch first",
                            communicator_.rank(), steps_));
  }
  joined_ = true;
  const bool others_train = !run_step().present.empty();
  joined_ = false;
  if (others_train) {
    end_step();
  } else {
    begin_step();
  }
  return others_train;
}

bool GradientSynchronizer::Impl::pause(bool on) {
  const std::lock_guard lock(mutex_);
  if (on && !paused_ && !ready_order_.empty()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rank {}: no_sync() in the middle of step {}; call finish() first", communicator_.rank(), steps_));
  }
  states_.assign(parameters_.size(), State::waiting);  // a pass may end without finish() there
  ready_order_.clear();
  return std::exchange(paused_, on);
}

void GradientSynchronizer::Impl::move_buffer(std::size_t index, void* values) {
  if (index >= options_.buffers.size() || (values == nullptr && options_.buffers[index].count != 0)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {}: buffer {} of {} cannot be moved to {}", communicator_.rank(), index,
                            options_.buffers.size(), fmt::ptr(values)));
  }
  options_.buffers[index].values = values;
}

GradientSynchronizer::Progress GradientSynchronizer::Impl::progress() const {
  const std::lock_guard lock(mutex_);
  return {.ready = ready_count_,
          .parameters = parameters_.size(),
          .started = started_,
          .reduced = reducer_->reduced(),
          .buckets = reducer_->buckets().size()};
}

GradientSynchronizer::GradientSynchronizer(Communicator& communicator, std::vector<Parameter> parameters,
                                           SynchronizerOptions options)
    : impl_(std::make_unique<Impl>(communicator, std::move(parameters), std::move(options))) {}
GradientSynchronizer::~GradientSynchronizer() = default;
void GradientSynchronizer::ready(std::size_t index) { impl_->ready(index); }
void GradientSynchronizer::finish() { impl_->finish(); }
bool GradientSynchronizer::join_step() { return impl_->join_step(); }
bool GradientSynchronizer::pause(bool on) { return impl_->pause(on); }
const std::vector<Parameter>& GradientSynchronizer::parameters() const { return impl_->parameters_; }
void* GradientSynchronizer::typed(std::size_t index, DataType dtype) const {
  if (index >= impl_->parameters_.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("there is no parameter {}; {} are registered", index, impl_->parameters_.size()));
  }
  const Parameter& p = impl_->parameters_[index];
  if (p.dtype == dtype) return p.gradient;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the gradient of parameter '{}' is {}, not {}", p.name, name_of(p.dtype), name_of(dtype)));
}
void GradientSynchronizer::move_buffer(std::size_t index, void* values) { impl_->move_buffer(index, values); }
std::vector<Parameter> GradientSynchronizer::averaged() const {
  std::vector<Parameter> all = impl_->parameters_;
  for (const std::size_t index : impl_->unused_everywhere_) all[index].gradient = nullptr;
  return all;
}
const std::vector<std::size_t>& GradientSynchronizer::unused_here() const { return impl_->unused_here_; }
const std::vector<std::size_t>& GradientSynchronizer::unused_everywhere() const { return impl_->unused_everywhere_; }
void GradientSynchronizer::begin_forward() { impl_->forward_ = Clock::now(); }
void GradientSynchronizer::begin_forward(std::uint64_t batch) {
  begin_forward();
  impl_->batch_ = batch;
}
void GradientSynchronizer::begin_backward() { impl_->backward_ = Clock::now(); }
const StepRecord& GradientSynchronizer::last_step() const { return impl_->record_; }
const Statistics& GradientSynchronizer::statistics() const { return impl_->statistics_; }
GradientSynchronizer::Progress GradientSynchronizer::progress() const { return impl_->progress(); }

}  // namespace rondo::trainer
