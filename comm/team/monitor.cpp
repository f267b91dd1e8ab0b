// SPDX-License-Identifier: Apache-2.0
#include "comm/team/monitor.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>

#include "comm/base/one_per_process.hpp"
#include "comm/base/system_error.hpp"
#include "kernels/thread.hpp"

namespace rondo::comm {
namespace {

void add(const Fd& epoll, int fd, int id) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = id;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("cannot watch a descriptor");
}

constinit OnePerProcess<Monitor> the_monitor;

}  // namespace

std::shared_ptr<Monitor> Monitor::of_process() { return the_monitor.get(); }

Monitor::Monitor(Thread thread) : epoll_(epoll_create1(EPOLL_CLOEXEC)), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !stop_) throw_errno("cannot make the monitor's descriptors (epoll and eventfd)");
  add(epoll_, stop_.get(), 0);
  if (thread == Thread::none) return;
  thread_ = start_thread("rondo-monitor", [this] {
    while (handle(-1)) {
    }
  });
}

Monitor::~Monitor() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

int Monitor::watch(int fd, Handler handler) {
  const std::lock_guard lock(mutex_);
  const int id = next_id_++;
  const auto known = numbers_.find(fd);
  const int number = known == numbers_.end() ? id : known->second;
  if (known == numbers_.end()) {
    add(epoll_, fd, number);
    numbers_.emplace(fd, number);
    descriptors_.emplace(number, Descriptor{fd, {}});
  }
  descriptors_.at(number).watches.insert(id);
  watched_.emplace(id, Watched{number, std::move(handler)});
  return id;
}

void Monitor::unwatch(int id) {
  const std::lock_guard lock(mutex_);
  forget(id);
}

void Monitor::forget(int id) {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  const auto descriptor = descriptors_.find(found->second.descriptor);
  watched_.erase(found);
  descriptor->second.watches.erase(id);
  if (!descriptor->second.watches.empty()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor->second.fd, nullptr);
  numbers_.erase(descriptor->second.fd);
  descriptors_.erase(descriptor);
}

int Monitor::hear_aborts(std::function<void()> handler) {
  const std::lock_guard lock(hearing_);
  hearers_.emplace(next_hearer_, std::move(handler));
  return next_hearer_++;
}

void Monitor::stop_hearing(int id) {
  const std::lock_guard lock(hearing_);
  hearers_.erase(id);
}

void Monitor::tell_abort() {
  const std::lock_guard lock(hearing_);
  for (const auto& [id, handler] : hearers_) handler();
}

bool Monitor::handle(int patience_ms) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), patience_ms);
  if (count < 0 && errno != EINTR) return false;
  for (int i = 0; i < count; ++i) {
    const int number = events[static_cast<std::size_t>(i)].data.fd;
    if (number == 0) return false;
    const std::lock_guard lock(mutex_);
    const auto descriptor = descriptors_.find(number);
    if (descriptor == descriptors_.end()) continue;
    for (const int id : std::set<int>(descriptor->second.watches)) run(id);
  }
  return true;
}

void Monitor::look_at_all() { handle(0); }

void Monitor::look(int id) {
  const std::lock_guard lock(mutex_);
  run(id);
}

void Monitor::run(int id) {
  const auto found = watched_.find(id);
  if (found != watched_.end() && !found->second.handler()) forget(id);
}

}  // namespace rondo::comm
