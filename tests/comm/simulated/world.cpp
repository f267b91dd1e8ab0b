// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/simulated/world.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

namespace rondo::comm::test {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;

}  // namespace

Process::Process(World& world, int rank)
    : world_(world), rank_(rank), monitor_(std::make_shared<Monitor>(Monitor::Thread::none)) {}

Process::~Process() {
  for (const auto& thread : threads_) simt::release(thread->fiber, thread->ended);
}

void Process::enter(void* entered) {
  auto& thread = *static_cast<Thread*>(entered);
  try {
    if (!thread.process->killed_) thread.body();
  } catch (const Killed&) {
  }
  thread.body = {};
  thread.ended = true;
  World& world = thread.process->world_;
  simt::switch_fiber(thread.fiber, world.own_, true);
}

void Process::run(std::function<void()> body) {
  auto& thread = *threads_.emplace_back(std::make_unique<Thread>(Thread{.process = this, .body = std::move(body)}));
  thread.nudged = true;
  simt::acquire(thread.fiber, kStackBytes, enter, &thread);
}

void Process::kill() {
  killed_ = true;
  stopped_ = false;
}

void Process::go_on() {
  stopped_ = false;
  if (news_) world_.look(*this);
}

bool Process::ended() const {
  return std::ranges::all_of(threads_, [](const auto& thread) { return thread->ended; });
}

void Process::has_news() {
  news_ = true;
  if (!stopped_) world_.look(*this);
}

void Process::look_soon() {
  for (const auto& thread : threads_) thread->nudged = true;
}

bool Process::ready(const Thread& thread) const {
  if (thread.ended || stopped_) return false;
  if (killed_ || thread.nudged || thread.until <= world_.now_) return true;
  return !thread.polled.empty() && ::poll(thread.polled.data(), thread.polled.size(), 0) > 0;
}

// Outside of all threads, in a monitor's handler or when all is over, there is nobody who could go on meanwhile.
void Process::block(Time until, std::span<pollfd> descriptors) {
  Thread* const thread = world_.running_;
  if (thread == nullptr) {
    world_.now_ = std::max(world_.now_, until);
    return;
  }
  if (killed_) throw Killed{};
  thread->until = until;
  thread->polled = descriptors;
  thread->nudged = false;
  std::memcpy(thread->handled.data(), abi::__cxa_get_globals(), thread->handled.size());
  std::memset(abi::__cxa_get_globals(), 0, thread->handled.size());
  simt::switch_fiber(thread->fiber, world_.own_);
  std::memcpy(abi::__cxa_get_globals(), thread->handled.data(), thread->handled.size());
  if (killed_) throw Killed{};
}

Time Process::now() { return world_.now_; }
void Process::nap(nanoseconds duration) {
  const Time until = world_.now_ + duration;
  do block(until);
  while (world_.now_ < until);
}

int Process::poll(std::span<pollfd> descriptors, nanoseconds patience) {
  const auto look = [&] { return ::poll(descriptors.data(), descriptors.size(), 0); };
  if (const int found = look(); found != 0 || patience <= nanoseconds(0)) return found;
  block(world_.now_ + patience, descriptors);
  return look();
}

void Process::wait(std::condition_variable&, std::unique_lock<std::mutex>& lock, nanoseconds patience) {
  lock.unlock();
  block(world_.now_ + patience);
  lock.lock();
}

std::thread Process::start(const char*, std::function<void()> body) {
  run(std::move(body));
  return {};
}

// Of the others the calling one is the only one that could wait for it.
void Process::join(std::thread&) {
  const auto others_ended = [&] {
    return std::ranges::all_of(threads_, [&](const auto& t) { return t->ended || t.get() == world_.running_; });
  };
  while (world_.running_ != nullptr && !others_ended()) nap(milliseconds(1));
}

Fd Process::make_alarm() {
  Fd alarm(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  auto made = std::make_shared<Alarm>();
  made->descriptor = Fd(::fcntl(alarm.get(), F_DUPFD_CLOEXEC, 0));
  alarms_.push_back(std::move(made));
  return alarm;
}

void Process::set_alarm(const Fd&, Time time) {  // of one; a team has no more
  const std::shared_ptr<Alarm>& alarm = alarms_.back();
  alarm->time = time;
  world_.at(time, [this, alarm, time] {
    if (alarm->time != time || killed_) return;
    eventfd_write(alarm->descriptor.get(), 1);
    has_news();
  });
}

Process& World::add_process() {
  return *processes_.emplace_back(std::make_unique<Process>(*this, static_cast<int>(processes_.size())));
}

void World::look(Process& process) {
  if (process.killed_ || process.ended()) return;
  process.news_ = false;
  process.monitor_->look_at_all();
  process.look_soon();
  after_step_(process);
}

void World::resume(Process::Thread& thread) {
  running_ = &thread;
  simt::switch_fiber(own_, thread.fiber);
  running_ = nullptr;
  after_step_(*thread.process);
}

bool World::step() {
  std::vector<Process::Thread*> ready;
  for (const auto& process : processes_) {
    for (const auto& thread : process->threads_) {
      if (process->ready(*thread)) ready.push_back(thread.get());
    }
  }
  if (ready.empty()) return false;
  resume(*ready[draw(0, ready.size() - 1)]);
  return true;
}

bool World::run(Time until) {
  const auto all_ended = [&] {
    return std::ranges::all_of(processes_, [](const auto& process) { return process->ended(); });
  };
  while (!all_ended()) {
    if (step()) continue;
    Time next = events_.empty() ? Time::max() : events_.begin()->first;
    for (const auto& process : processes_) {
      for (const auto& thread : process->threads_) {
        if (!thread->ended && !process->stopped_) next = std::min(next, thread->until);
      }
    }
    if (next > until) return false;
    now_ = std::max(now_, next);
    while (!events_.empty() && events_.begin()->first <= now_) {
      const auto action = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      action();
    }
  }
  return true;
}

}  // namespace rondo::comm::test
