// SPDX-License-Identifier: Apache-2.0
// Watches whether the hosts of other nodes' ranks answer, by two connections to each rank that carry nothing, and one
// that carries little. The monitor's thread does it; no time is spent where all ranks are on one host.
#pragma once
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/base/fd.hpp"
#include "comm/base/pulse.hpp"
#include "comm/team/monitor.hpp"

namespace rondo::comm {

class Pulses {
 public:
  struct Events {  // on the monitor's thread, once per peer
    // Its host, by all its ranks, has been silent for as long as we are patient. `alone`: so has every other host that
    // is watched, and there are several.
    std::function<void(int peer, std::string_view reason, bool alone)> silent;
    // Its connection ended that long ago; whether it left or is gone, its control connection should have said.
    std::function<void(int peer)> ended;
  };
  Pulses(std::shared_ptr<Monitor> monitor, std::chrono::milliseconds patience, Events events, System& system);
  ~Pulses() { stop(); }
  Pulses(const Pulses&) = delete;
  Pulses& operator=(const Pulses&) = delete;

  // control: another connection to it, which is open until stop().
  void add(int peer, int node, std::array<Fd, 2> sockets, int control);
  void start();  // after the last add()
  void stop();   // after this no event comes

 private:
  struct Peer {
    int rank, node;
    std::array<Fd, 2> sockets;
    Pulse pulse;
    std::optional<Pulse::Time> ended_at{};
    bool reported = false;
  };
  bool tick();
  void look_at(Peer& peer, Pulse::Time now);
  void set_alarm() const;
  bool hears_node_of(const Peer& silent) const;
  bool hears_others(const Peer& silent) const;

  System& system_;
  std::shared_ptr<Monitor> monitor_;
  std::chrono::milliseconds patience_;
  Events events_;
  std::vector<Peer> peers_;  // the monitor's thread's, once started
  Fd timer_;
  int watch_ = 0;
};

}  // namespace rondo::comm
