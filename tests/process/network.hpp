// SPDX-License-Identifier: Apache-2.0
// Hosts on a switch of our own, which loses, delays and holds back what they send each other: kernels need not have
// netem. Every host's eth0 is a TAP whose other end one thread of this process holds.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/base/fd.hpp"
#include "tests/process/host.hpp"

namespace rondo::test {

struct Weather {
  double loss = 0;  // of packets, each way; the question where an address is gets through
  std::chrono::microseconds delay{},
      jitter{};  // each way; jitter: up to so much more or less, so that packets overtake
  std::size_t longest = std::numeric_limits<std::size_t>::max();  // packets of more bytes are lost
};

class Network {
 public:
  Network(std::size_t hosts, unsigned seed);
  ~Network();

  std::size_t size() const { return hosts_.size(); }
  const Host& host(std::size_t i) const { return hosts_[i]; }
  static std::string address(std::size_t i) { return "10.77.0." + std::to_string(i + 1); }

  void set_sysctl(const std::string& path, const std::string& value) const;  // of every host

  void set(Weather weather);                      // from now on, for all
  void cut(std::size_t host, bool cut);           // drops all that it sends and all for it: no reset, no ICMP
  void part(std::size_t one, std::size_t other);  // drops all that these two send each other
  std::uint64_t lost() const { return lost_; }    // packets, by loss and cuts
  std::uint64_t carried() const { return carried_; }
  std::string recording() const;  // all frames that any host has sent so far, one behind the other

 private:
  using Clock = std::chrono::steady_clock;
  struct Packet {
    Clock::time_point at;
    std::uint64_t number;
    std::size_t to;
    std::string bytes;
    bool operator<(const Packet& other) const {  // the queue's top is the earliest
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  void run();
  void take_from(std::size_t host);
  void forward(std::size_t from, std::size_t to, const std::string& frame);
  bool is_lost(std::size_t from, std::size_t to, const std::string& frame);
  void deliver_due();

  std::deque<Host> hosts_;
  std::vector<Fd> taps_;
  Fd stop_;
  mutable std::mutex mutex_;  // guards the weather, what is cut and what is kept
  std::string recording_;
  Weather weather_;
  std::set<std::size_t> cut_;
  std::set<std::pair<std::size_t, std::size_t>> parted_;  // the lower one first
  std::mt19937 random_;                                   // this and the rest: the thread's
  std::priority_queue<Packet> under_way_;
  std::uint64_t number_ = 0;
  std::atomic<std::uint64_t> lost_{0}, carried_{0};
  std::thread thread_;
};

bool networks_possible();  // says skipped: and why when not

}  // namespace rondo::test
