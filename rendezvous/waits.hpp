// SPDX-License-Identifier: Apache-2.0
// Requests that wait for something, by deadline and by connection. Every waiting request of the server is in this one
// table, whatever it waits for.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace rondo::rendezvous {

using Time = std::chrono::steady_clock::time_point;
using ConnectionId = std::uint64_t;
using WaitId = std::uint64_t;  // 0: none

// A request, as the one to answer.
struct Caller {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
};

enum class WaitKind : std::uint8_t { key, gather, join, survivors, recruit, admission };

struct Wait {
  Caller caller;
  Time deadline;
  WaitKind kind;
  std::string name;  // of the key, the gathering, the communicator
};

class Waits {
 public:
  WaitId add(Wait wait) {
    const WaitId id = ++last_;
    by_deadline_.emplace(wait.deadline, id);
    by_connection_[wait.caller.connection].insert(id);
    waits_.emplace(id, std::move(wait));
    return id;
  }
  Wait take(WaitId id) {
    const auto found = waits_.find(id);
    Wait wait = std::move(found->second);
    waits_.erase(found);
    by_deadline_.erase({wait.deadline, id});
    const auto own = by_connection_.find(wait.caller.connection);
    own->second.erase(id);
    if (own->second.empty()) by_connection_.erase(own);
    return wait;
  }
  const Wait& at(WaitId id) const { return waits_.at(id); }
  std::vector<WaitId> of(ConnectionId connection) const {
    const auto own = by_connection_.find(connection);
    if (own == by_connection_.end()) return {};
    return {own->second.begin(), own->second.end()};
  }
  std::optional<Time> next_deadline() const {
    if (by_deadline_.empty()) return std::nullopt;
    return by_deadline_.begin()->first;
  }
  std::optional<WaitId> expired(Time now) const {
    if (by_deadline_.empty() || by_deadline_.begin()->first > now) return std::nullopt;
    return by_deadline_.begin()->second;
  }
  std::size_t count() const { return waits_.size(); }

 private:
  WaitId last_ = 0;
  std::unordered_map<WaitId, Wait> waits_;
  std::set<std::pair<Time, WaitId>> by_deadline_;
  std::unordered_map<ConnectionId, std::set<WaitId>> by_connection_;
};

}  // namespace rondo::rendezvous
