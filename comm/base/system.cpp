// SPDX-License-Identifier: Apache-2.0
#include "comm/base/system.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>

#include "comm/base/pulse.hpp"
#include "comm/base/system_error.hpp"
#include "kernels/thread.hpp"

namespace rondo {
namespace {

using std::chrono::nanoseconds;

timespec timespec_of(nanoseconds duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {seconds.count(), nanoseconds(duration - seconds).count()};
}

void set(int socket, int level, int option, int value) { ::setsockopt(socket, level, option, &value, sizeof value); }

}  // namespace

System& System::real() {
  static System& system = *new System;  // threads may ask it as the process ends
  return system;
}

System::Time System::now() { return std::chrono::steady_clock::now(); }

void System::nap(nanoseconds duration) { std::this_thread::sleep_for(duration); }

int System::poll(std::span<pollfd> descriptors, nanoseconds patience) {
  const timespec duration = timespec_of(std::max(patience, nanoseconds(0)));
  return ::ppoll(descriptors.data(), descriptors.size(), &duration, nullptr);
}

void System::wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, nanoseconds patience) {
  changed.wait_for(lock, patience);
}

std::thread System::start(const char* name, std::function<void()> body) { return start_thread(name, std::move(body)); }

void System::join(std::thread& thread) {
  if (thread.joinable()) thread.join();
}

Fd System::make_alarm() {
  Fd alarm(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!alarm) throw_errno("cannot make a timer");
  return alarm;
}

// steady_clock and the timer are the same clock. A time of 0 would disarm it.
void System::set_alarm(const Fd& alarm, Time time) {
  const itimerspec set{{}, timespec_of(std::max(nanoseconds(time.time_since_epoch()), nanoseconds(1)))};
  if (::timerfd_settime(alarm.get(), TFD_TIMER_ABSTIME, &set, nullptr) != 0) throw_errno("cannot set a timer");
}

std::optional<System::Silence> System::silence_of(int socket) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || info.tcpi_state != TCP_ESTABLISHED)
    return std::nullopt;
  return Silence{std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)),
                 info.tcpi_unacked != 0};
}

// Told how long a connection may be idle, the kernel looks at once whether it has been for so long, and probes. Without
// a time of its own it would give up after nine probes, in less than half a second.
void System::keep_probing(int socket, bool on) {
  if (on) set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kKernelPatience.count()));
  set(socket, SOL_SOCKET, SO_KEEPALIVE, on ? 1 : 0);
  if (on) set(socket, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(kProbedAfter / std::chrono::seconds(1)));
}

}  // namespace rondo
