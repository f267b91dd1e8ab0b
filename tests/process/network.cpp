// SPDX-License-Identifier: Apache-2.0
#include "tests/process/network.hpp"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <stdexcept>

namespace rondo::test {
namespace {

constexpr std::size_t kLongestFrame = 64 << 10;
constexpr std::size_t kMostRecorded = 16 << 20;
constexpr int kBurst = 64;  // frames of one host before the next one's turn

// The byte that tells hosts apart in their hardware addresses, 02:00:00:00:00:xx.
constexpr std::size_t kHostByte = 5, kTypeByte = 12;
std::string hardware_address(std::size_t i) { return "02:00:00:00:00:0" + std::to_string(i + 1); }
bool is_arp(const std::string& frame) { return frame[kTypeByte] == 8 && frame[kTypeByte + 1] == 6; }

Fd make_tap() {
  Fd tap(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::strcpy(request.ifr_name, "eth0");
  if (!tap || ::ioctl(tap.get(), TUNSETIFF, &request) != 0)
    throw std::runtime_error(std::string("cannot make a TAP interface: ") + std::strerror(errno));
  return tap;
}

}  // namespace

Network::Network(std::size_t hosts, unsigned seed)
    : hosts_(hosts), stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), random_(seed) {
  for (std::size_t i = 0; i < hosts; ++i) {
    taps_.push_back(hosts_[i].make_here(make_tap));
    hosts_[i].ip({"link", "set", "eth0", "address", hardware_address(i), "txqueuelen", "10000"});
    hosts_[i].add_address(address(i) + "/24");
  }
  thread_ = std::thread([this] { run(); });
}

Network::~Network() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void Network::set_sysctl(const std::string& path, const std::string& value) const {
  for (const Host& host : hosts_) host.set_sysctl(path, value);
}

void Network::set(Weather weather) {
  const std::lock_guard lock(mutex_);
  weather_ = weather;
}
void Network::cut(std::size_t host, bool cut) {
  const std::lock_guard lock(mutex_);
  if (cut) {
    cut_.insert(host);
  } else {
    cut_.erase(host);
  }
}

void Network::part(std::size_t one, std::size_t other) {
  const std::lock_guard lock(mutex_);
  parted_.insert(std::minmax(one, other));
}

std::string Network::recording() const {
  const std::lock_guard lock(mutex_);
  return recording_;
}

void Network::run() {
  std::vector<pollfd> polled;
  for (const Fd& tap : taps_) polled.push_back({tap.get(), POLLIN, 0});
  polled.push_back({stop_.get(), POLLIN, 0});
  for (;;) {
    timespec left{1, 0};
    if (!under_way_.empty()) {
      const auto until = std::max(Clock::duration::zero(), under_way_.top().at - Clock::now());
      const auto whole = std::chrono::duration_cast<std::chrono::seconds>(until);
      left = {whole.count(), std::chrono::nanoseconds(until - whole).count()};
    }
    if (::ppoll(polled.data(), polled.size(), &left, nullptr) < 0) continue;
    if (polled.back().revents != 0) return;
    deliver_due();
    for (std::size_t i = 0; i < taps_.size(); ++i) {
      if (polled[i].revents != 0) take_from(i);
    }
  }
}

void Network::take_from(std::size_t host) {
  std::array<char, kLongestFrame> buffer;
  for (int i = 0; i < kBurst; ++i) {
    const ssize_t bytes = ::read(taps_[host].get(), buffer.data(), buffer.size());
    if (bytes <= static_cast<ssize_t>(kTypeByte + 1)) return;
    const std::string frame(buffer.data(), static_cast<std::size_t>(bytes));
    const auto to = static_cast<std::size_t>(frame[kHostByte] - 1);
    const bool to_all = (frame[0] & 1) != 0;
    for (std::size_t other = 0; other < taps_.size(); ++other) {
      if (other != host && (to_all || other == to)) forward(host, other, frame);
    }
  }
}

bool Network::is_lost(std::size_t from, std::size_t to, const std::string& frame) {
  if (cut_.contains(from) || cut_.contains(to) || parted_.contains(std::minmax(from, to))) return true;
  if (frame.size() > weather_.longest) return true;
  return !is_arp(frame) && std::bernoulli_distribution(weather_.loss)(random_);
}

void Network::forward(std::size_t from, std::size_t to, const std::string& frame) {
  const std::lock_guard lock(mutex_);
  if (recording_.size() < kMostRecorded) recording_ += frame;
  if (is_lost(from, to, frame)) {
    ++lost_;
    return;
  }
  ++carried_;
  auto delay = weather_.delay;
  if (const auto most = weather_.jitter.count(); most > 0)
    delay += std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(-most, most)(random_));
  if (delay.count() > 0) return under_way_.push({Clock::now() + delay, number_++, to, frame});
  // A full queue loses it, as on any wire.
  if (::write(taps_[to].get(), frame.data(), frame.size()) < 0) ++lost_;
}

void Network::deliver_due() {
  while (!under_way_.empty() && under_way_.top().at <= Clock::now()) {
    const Packet& packet = under_way_.top();
    if (::write(taps_[packet.to].get(), packet.bytes.data(), packet.bytes.size()) < 0) ++lost_;
    under_way_.pop();
  }
}

bool networks_possible() {
  if (!namespaces_possible()) return false;
  try {
    const Network one(1, 1);
    return true;
  } catch (const std::exception& error) {
    std::cout << "skipped: a network that loses packets needs TAP interfaces (/dev/net/tun): " << error.what() << "\n";
    return false;
  }
}

}  // namespace rondo::test
