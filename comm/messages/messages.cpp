// SPDX-License-Identifier: Apache-2.0
#include "comm/messages/messages.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "comm/base/duration.hpp"
#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "comm/base/only_caller.hpp"
#include "comm/base/system_error.hpp"
#include "kernels/thread.hpp"

namespace rondo::comm {
namespace {

using namespace std::chrono_literals;
constexpr auto kFirstInspection = 10ms;
constexpr auto kInspectEvery = 50ms;
constexpr auto kReportAfter = 2s;
constexpr auto kNap = 1ms;         // where nothing wakes the rank
constexpr auto kLingerFor = 20ms;  // of the thread, once nothing is left
constexpr std::uint64_t kSpinsPerYield = 64, kRoundsPerInspection = 4096;
constexpr std::uint64_t kYieldsUntilTold = 2;  // where many want few cores, each may take long
constexpr std::uint64_t kCallsPerYield = 16;   // a look that calls the kernel takes as long as many pauses

bool calls_kernel(Team& team) {
  for (int peer = 0; peer < team.size(); ++peer) {
    const auto& link = team.message_links(peer).recv;
    if (link && link->wake().by == Wake::By::descriptor) return true;
  }
  return false;
}

}  // namespace

struct Messages::Patience {
  std::uint64_t rounds = 0;
  std::uint64_t vain = 0;  // of them, since something moved
  bool nudged = false;     // whoever watches knows of what this thread waits for
};

Messages::Messages(Team& team, const Config& config, std::function<std::exception_ptr()> failure)
    : team_(team),
      failure_(std::move(failure)),
      bells_(team.bells().of_messages()),
      spins_(team.crowded() ? 0 : config.spin),
      yields_(config.yields),
      rounds_per_yield_(calls_kernel(team) ? kCallsPerYield : kSpinsPerYield),
      exchange_(team) {}

Messages::~Messages() {
  {
    Lock lock = enter();
    if (!nothing_left()) advance(lock);  // they have failed
    stopping_ = true;
    nudge();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  exchange_.tell_unread();
}

// ---- what callers do ----

std::shared_ptr<Batch> Messages::start(std::span<const Call> calls, std::chrono::milliseconds timeout,
                                       bool tells_source) {
  auto batch = std::make_shared<Batch>();
  batch->begin(calls, timeout, tells_source ? Batch::Kind::one : Batch::Kind::many);
  batch->mind_time(Clock::now());
  Lock lock = enter();
  batches_.push_front(batch);
  post(*batch);
  advance(lock);
  if (!nothing_left()) keep_going();
  return batch;
}

// A blocking call of a few bytes takes less time than to make what it needs.
void Messages::run(std::span<const Call> calls, std::chrono::milliseconds timeout) {
  Lock lock = enter();
  std::uint64_t record = 0;
  if (calls.size() == 1 && nothing_left() && run_at_once(calls.front(), record)) return;
  if (spare_.empty()) spare_.push_front(std::make_shared<Batch>());
  batches_.splice(batches_.begin(), spare_, spare_.begin());
  Batch& batch = *batches_.front();
  batch.begin(calls, timeout, Batch::Kind::blocking);
  if (record != 0) batch.operations.front().record = record;
  post(batch);
  wait(lock, batch);
  const std::exception_ptr failure = std::exchange(batch.failure, nullptr);
  spare_.splice(spare_.begin(), ended_, batch.place);
  if (failure) std::rethrow_exception(failure);
}

// The record of what has been sent is written while it crosses.
bool Messages::run_at_once(const Call& call, std::uint64_t& record) {
  bool done = false;
  guarded([&] {
    if (call.collective == Collective::send) {
      done = exchange_.send_at_once(call);
      if (done) record = note(call.collective, call.count, call.dtype, call.root);
    } else {
      record = note(call.collective, call.count, call.dtype, call.root);
      done = receive_soon(call);
    }
  });
  if (done) recorder_.end_call(record);
  return done;
}

bool Messages::receive_soon(const Call& call) {
  for (std::uint64_t vain = 1;; ++vain) {
    const Exchange::Look look = exchange_.receive_at_once(call);
    if (look != Exchange::Look::not_here) return look == Exchange::Look::received;
    if (vain > spins_ || vain == rounds_per_yield_ || entering_.load(std::memory_order_relaxed) != 0) return false;
    if (team_.failure().raised()) return false;
    pause_cpu();
  }
}

std::uint64_t Messages::note(Collective which, std::uint64_t count, DataType dtype, int peer) {
  return recorder_.begin({.sequence = 1, .count = count, .collective = which, .dtype = dtype, .root = peer}, "direct");
}

void Messages::wait(Batch& batch) {
  Lock lock = enter();
  wait(lock, batch);
  if (batch.failure) std::rethrow_exception(batch.failure);
}

void Messages::wait(Lock& lock, Batch& batch) {
  drive(lock, Clock::time_point::max(), [&] { return batch.settled; });
  if (!nothing_left()) keep_going();
}

bool Messages::drain_for(std::chrono::milliseconds duration) {
  Lock lock = enter();
  return drive(lock, Clock::now() + duration, [&] { return nothing_left(); });
}

// A thread that moves messages would otherwise have the mutex again before who waits for it.
Messages::Lock Messages::enter() {
  Lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  ++entering_;
  lock.lock();
  --entering_;
  return lock;
}

void Messages::post(Batch& batch) {
  in_use_.store(true, std::memory_order_relaxed);
  if (batches_.size() == 1) next_inspection_ = {};
  batch.place = batches_.begin();
  guarded([&] {
    for (Operation& operation : batch.operations) {
      if (operation.record != 0) continue;
      const Collective which = operation.sends ? Collective::send : Collective::recv;
      operation.record = note(which, operation.count, operation.dtype, operation.peer);
    }
    for (const bool sends : {false, true}) {  // what a rank then sends itself has a place
      for (Operation& operation : batch.operations) {
        if (operation.sends == sends) exchange_.post(operation);
      }
    }
  });
  collect();
}

// ---- how they go on ----

bool Messages::advance(Lock& lock) {
  bool moved = false;
  guarded([&] {
    team_.failure().check();
    moved = exchange_.advance();
  });
  collect();
  if (settled_.empty()) return moved;
  deliver(lock);
  return true;
}

// What goes wrong is everybody's failure.
template <class Step>
void Messages::guarded(Step step) {
  try {
    step();
  } catch (const Error& error) {
    if (team_.failure().raised()) return fail(error);
    const int peer = error.culprit();
    if (error.error_code() == ErrorCode::peer_lost && peer >= 0) {
      team_.await_verdict(peer);
      const Operation* waiting = find_waiting_for(peer);
      if (team_.departed(peer) && waiting != nullptr)
        return fail({ErrorCode::peer_lost,
                     fmt::format("rank {} left while rank {} was waiting for it in {}", peer, team_.rank(),
                                 waiting->describe()),
                     peer});
    }
    fail(error);
  } catch (const std::exception& error) {
    fail({ErrorCode::system, fmt::format("rank {}: {}", team_.rank(), reason_of(error)), team_.rank()});
  }
}

void Messages::fail(const Error& error) {
  collect();
  team_.fail(error);
  exchange_.forget();
  if (batches_.empty()) return;
  const std::exception_ptr failure = failure_();
  while (!batches_.empty()) settle(*batches_.front(), failure);
}

void Messages::collect() {
  for (Operation* operation : exchange_.finished()) {
    recorder_.end_call(operation->record);
    if (--operation->batch->left == 0) settle(*operation->batch, nullptr);
  }
  exchange_.clear_finished();
}

// Of a blocking call nobody has a Work: its caller looks.
void Messages::settle(Batch& batch, std::exception_ptr failure) {
  batch.settled = true;
  batch.failure = std::move(failure);
  if (batch.kind == Batch::Kind::blocking) {
    if (std::exchange(told_, false)) team_.own_line().message.store(0, std::memory_order_release);
    ended_.splice(ended_.begin(), batches_, batch.place);
    if (waiting_ != 0) changed_.notify_all();
  } else {
    settled_.push_back(std::move(*batch.place));
    batches_.erase(batch.place);
  }
}

// Callbacks may start more.
void Messages::deliver(Lock& lock) {
  const auto settled = std::exchange(settled_, {});
  changed_.notify_all();
  lock.unlock();
  {
    const Batch::Callbacks here;
    for (const auto& batch : settled) batch->finish();
  }
  ++entering_;
  lock.lock();
  --entering_;
}

template <class Done>
bool Messages::drive(Lock& lock, Clock::time_point until, Done done) {
  Patience patience;
  for (;;) {
    if (!settled_.empty()) deliver(lock);
    if (done()) return true;
    if (advance(lock)) {
      patience.vain = 0;
    } else if (until != Clock::time_point::max() && Clock::now() >= until) {
      return false;
    }
    if (done()) return true;
    idle(lock, patience, until);
  }
}

void Messages::idle(Lock& lock, Patience& patience, Clock::time_point until) {
  if (++patience.rounds % kRoundsPerInspection == 0 && Clock::now() >= next_inspection_) inspect();
  const bool moved = patience.vain++ == 0, spins = patience.vain <= spins_ && patience.vain % rounds_per_yield_ != 0;
  if (patience.vain == spins_ + kYieldsUntilTold) tell_what_waits();
  if (entering_.load(std::memory_order_relaxed) == 0) {  // then the mutex need not be given away
    if (moved) return;
    if (spins) return pause_cpu();
    if (patience.vain > spins_ + yields_) return sleep(lock, patience, until);
  }
  lock.unlock();
  yield_cpu();
  lock.lock();
}

// One thread at a time watches for all. It is nudged once by each that waits: it wakes them all when it wakes, and they
// would nudge each other for ever.
void Messages::sleep(Lock& lock, Patience& patience, Clock::time_point until) {
  if (watching_) {
    if (!std::exchange(patience.nudged, true)) nudge();
    ++waiting_;
    changed_.wait_until(lock, std::min(until, Clock::now() + kInspectEvery));
    --waiting_;
    return;
  }
  watching_ = true;
  bells_.announce_sleep(team_.own_index());
  if (settled_.empty() && !advance(lock)) poll_links(lock, until);
  bells_.sleeping(team_.own_index()).store(0, std::memory_order_relaxed);
  watching_ = false;
  changed_.notify_all();
  if (Clock::now() >= std::min(next_inspection_, first_deadline_)) inspect();
}

void Messages::poll_links(Lock& lock, Clock::time_point until) {
  guarded([&] {
    if (!nudge_) nudge_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!nudge_) throw_errno("cannot make an eventfd to wait for messages");
  });
  if (!nudge_) return;
  const int own = team_.own_index();
  blocked_.clear();
  exchange_.list_blocked(blocked_);
  polled_.assign({{bells_.fd(own), POLLIN, 0}, {nudge_.get(), POLLIN, 0}});
  const auto now = Clock::now();
  mind_times(now);
  auto wake_at = std::min({until, next_inspection_, first_deadline_});
  for (const Blocked& b : blocked_) {
    if (b.wake.by == Wake::By::descriptor) polled_.push_back({b.wake.fd, b.wake.events, 0});
    if (b.wake.by == Wake::By::looking) wake_at = std::min(wake_at, now + kNap);
  }
  const auto left = std::clamp<Clock::duration>(wake_at - now, Clock::duration::zero(), kInspectEvery);
  const timespec duration{0, std::chrono::nanoseconds(left).count()};
  lock.unlock();
  const int ready = ::ppoll(polled_.data(), polled_.size(), &duration, nullptr);
  const int reason = errno;
  lock.lock();
  if (ready < 0 && reason != EINTR) {
    errno = reason;
    guarded([] { throw_errno("cannot wait for messages"); });
  }
  excuse(stood_still(now + left, Clock::now()));
  if (polled_[0].revents != 0) bells_.drain(own);
  eventfd_t count = 0;
  if (polled_[1].revents != 0) static_cast<void>(::eventfd_read(nudge_.get(), &count));
}

void Messages::nudge() {
  if (watching_ && nudge_) static_cast<void>(::eventfd_write(nudge_.get(), 1));
}

// ---- the thread ----

void Messages::keep_going() {
  if (!settled_.empty()) changed_.notify_all();
  if (running_) {
    nudge();
    changed_.notify_all();
    return;
  }
  if (thread_.joinable()) thread_.join();  // it has said that it ends
  guarded([&] {
    thread_ = start_thread("rondo-messages", [this] { loop(); });
    running_ = true;
  });
}

void Messages::loop() {
  Lock lock = enter();
  while (!stopping_) {
    drive(lock, Clock::time_point::max(), [&] { return stopping_ || nothing_left(); });
    if (stopping_ || !changed_.wait_for(lock, kLingerFor, [&] { return stopping_ || !nothing_left(); })) break;
  }
  running_ = false;
}

// ---- what keeps them ----

// A call that is over at once never asks what time it is.
void Messages::mind_times(Clock::time_point now) {
  if (next_inspection_ == Clock::time_point{}) next_inspection_ = now + kFirstInspection;
  first_deadline_ = Clock::time_point::max();
  for (const auto& batch : batches_) {
    batch->mind_time(now);
    first_deadline_ = std::min(first_deadline_, batch->deadline);
  }
}

// Nothing was waited for in that time.
void Messages::excuse(Clock::duration stood_still) {
  if (stood_still == Clock::duration::zero()) return;
  for (const auto& batch : batches_) batch->excuse(stood_still);
  mind_times(Clock::now());
}

void Messages::inspect() {
  mind_times(Clock::now());
  next_inspection_ = Clock::now() + kInspectEvery;
  if (batches_.empty()) return;
  tell_what_waits();
  guarded([&] {
    team_.failure().check();
    look_for_departures();
    look_for_standoffs();
    blocked_.clear();
    exchange_.list_blocked(blocked_);
    death_watch_.look(team_, blocked_);
    farewell_watch_.look(team_, blocked_);
    look_for_deadlines();
  });
  collect();
}

// Others whose calls do not end ask for it.
void Messages::tell_what_waits() {
  for (const auto& batch : batches_) {
    if (batch->kind != Batch::Kind::blocking) continue;
    for (const Operation& operation : batch->operations) {
      if (operation.finished) continue;
      told_ = true;
      const PackedMessage message(operation.sends, operation.other());
      return team_.own_line().message.store(message.word, std::memory_order_release);
    }
  }
}

const Operation* Messages::find_waiting_for(int peer) const {
  for (const auto& batch : batches_) {
    for (const Operation& operation : batch->operations) {
      if (!operation.finished && operation.other() == peer) return &operation;
    }
  }
  return nullptr;
}

// What a rank had sent through the segment is there by the time it has left. By other links it may take any time; there
// the end of the link tells, which comes after it.
void Messages::look_for_departures() {
  std::vector<int> gone;
  for (int peer = 0; peer < team_.size(); ++peer) {
    const bool left = team_.shares_memory(peer) && team_.departed(peer) && team_.message_links(peer).recv &&
                      team_.message_links(peer).recv->wake().by == Wake::By::doorbell;
    if (peer != team_.rank() && (left || exchange_.has_ended(peer))) gone.push_back(peer);
  }
  if (gone.empty()) return;
  while (exchange_.advance()) collect();
  const bool all = static_cast<int>(gone.size()) == team_.size() - 1;
  for (const auto& batch : batches_) {
    for (const Operation& operation : batch->operations) {
      const bool any = operation.other() == kAnySource;
      const bool alone = any ? all : std::find(gone.begin(), gone.end(), operation.other()) != gone.end();
      if (operation.finished || !alone) continue;
      const int peer = any ? gone.front() : operation.other();
      throw Error(
          ErrorCode::peer_lost,
          any ? fmt::format("all other ranks left while rank {} was waiting in {}", team_.rank(), operation.describe())
              : fmt::format("rank {} left while rank {} was waiting for it in {}", peer, team_.rank(),
                            operation.describe()),
          peer);
    }
  }
}

// Of the call that this thread is in, which is the only one where no other thread may make any.
void Messages::look_for_standoffs() {
  const auto call = std::find_if(batches_.begin(), batches_.end(),
                                 [](const auto& batch) { return batch->kind == Batch::Kind::blocking; });
  if (call == batches_.end() || !is_only_caller()) return;
  for (const Operation& operation : (*call)->operations) {
    const int peer = operation.other();
    if (operation.finished || peer < 0 || peer == team_.rank() || !exchange_.awaits_peer(operation)) continue;
    team_.look_for_standoff(operation.describe(), peer,
                            [&](std::uint64_t steps) { return exchange_.has_taken(peer, steps); });
  }
}

void Messages::look_for_deadlines() {
  const auto now = Clock::now();
  for (const auto& batch : batches_) {
    const bool late = now >= batch->deadline, tells = !batch->reported && now >= batch->started + kReportAfter;
    if (!late && !tells) continue;
    const auto waiting = std::find_if(batch->operations.begin(), batch->operations.end(),
                                      [](const Operation& operation) { return !operation.finished; });
    if (late) throw Error(ErrorCode::timeout, report(*batch, *waiting), std::max(waiting->other(), -1));
    batch->reported = true;
    log::warn("{}", report(*batch, *waiting));
  }
}

std::string Messages::report(const Batch& batch, const Operation& operation) const {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - batch.started);
  std::string text = fmt::format("rank {} has waited {:.1f} s in {}", team_.rank(),
                                 static_cast<double>(waited.count()) / 1e3, operation.describe());
  if (batch.left > 1) text += fmt::format(" and {} other messages", batch.left - 1);
  const int peer = operation.other();
  if (peer < 0 || peer == team_.rank()) return text;
  return text + team_.describe_latest(peer);
}

}  // namespace rondo::comm
