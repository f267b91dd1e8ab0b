// SPDX-License-Identifier: Apache-2.0
// The server's core and many clients in one thread, under a clock and a network of our own: seeded delays, bytes cut
// anywhere, connections that break or are held up, a server that stands still or dies. Order holds within a connection
// and nowhere else.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/client_session.hpp"
#include "rendezvous/core.hpp"

namespace rondo::rendezvous::test {

using std::chrono::milliseconds;

class Network final : private Output {
 public:
  Network(std::uint64_t seed, const CoreOptions& options) : random_(seed), options_(options) {
    core_.emplace(options_, static_cast<Output&>(*this));
  }

  struct Handler {
    std::function<void(std::span<const std::byte>)> bytes;
    std::function<void()> end;  // the server has closed
  };
  ConnectionId connect(Handler handler);
  void send(ConnectionId id, const std::string& bytes);
  // The client's end: what is on its way up may still arrive, or not.
  void cut(ConnectionId id, bool lose_what_is_under_way);
  void after(milliseconds delay, std::function<void()> action) { at(now_ + delay, std::move(action)); }
  void run(Time until);

  void set_longest_delay(std::chrono::microseconds delay) {
    longest_delay_us_ = static_cast<std::uint64_t>(delay.count());
  }
  // Nothing arrives at either end before, and then all of it.
  void hold(ConnectionId id, Time until);
  // The server does nothing until then, and finds its timers over before it reads what has come.
  void freeze(Time until) { frozen_until_ = std::max(frozen_until_, until); }
  // All its connections end, and a new one that knows nothing serves at its place, from then on.
  void replace_server(milliseconds away = milliseconds(0));
  bool has_server() const { return now_ >= away_until_; }
  void serve() { away_until_ = std::min(away_until_, now_); }  // the new one, before its time

  Time now() const { return now_; }
  Core& core() { return *core_; }
  std::uint64_t draw(std::uint64_t low, std::uint64_t high) {  // the same on every platform
    return low + random_() % (high - low + 1);
  }

 private:
  struct Line {  // one connection
    Handler handler;
    Time up{}, down{};  // when the last piece arrives
    bool client_open = true, server_open = true;
    std::shared_ptr<TlsSession> tls{};  // of what the server says
  };
  void at(Time time, std::function<void()> action) { events_.emplace(time, std::move(action)); }
  // Of what the server does.
  void at_server(Time time, std::function<void()> action);
  void work_off();
  Time arrival(Time& last) {
    return last = std::max(last, now_ + std::chrono::microseconds(draw(10, longest_delay_us_)));
  }
  std::vector<std::string> pieces(const std::string& bytes);
  void send(ConnectionId id, std::string head, SharedBody body) override;
  void encrypt(ConnectionId id, std::shared_ptr<TlsSession> tls) override { lines_[id].tls = std::move(tls); }
  void close(ConnectionId id) override;
  void drop(ConnectionId id) override { close(id); }

  std::mt19937_64 random_;
  std::uint64_t longest_delay_us_ = 50'000;
  CoreOptions options_;
  Time now_{}, frozen_until_{}, away_until_{};
  std::multimap<Time, std::function<void()>> events_;
  std::deque<std::function<void()>> backlog_;  // of the server's, while it stands still
  std::map<ConnectionId, Line> lines_;
  ConnectionId last_ = 0;
  std::optional<Core> core_;
};

inline std::vector<std::string> Network::pieces(const std::string& bytes) {
  std::vector<std::string> result;
  for (std::size_t from = 0; from < bytes.size();) {
    const std::size_t rest = bytes.size() - from;
    const std::size_t size = draw(0, 2) == 0 ? draw(1, rest) : rest;
    result.push_back(bytes.substr(from, size));
    from += size;
  }
  return result;
}

inline ConnectionId Network::connect(Handler handler) {
  const ConnectionId id = ++last_;
  lines_[id].handler = std::move(handler);
  Time& up = lines_[id].up;
  at_server(arrival(up), [this, id] {
    if (!lines_[id].server_open) return;
    if (now_ < away_until_) return close(id);  // nobody listens
    core_->connected(id, "10.0.0.1", now_);
  });
  return id;
}

inline void Network::send(ConnectionId id, const std::string& bytes) {
  for (const std::string& piece : pieces(bytes)) {
    at_server(arrival(lines_[id].up), [this, id, piece] {
      if (lines_[id].server_open) core_->received(id, as_bytes(piece), now_);
    });
  }
}

inline void Network::cut(ConnectionId id, bool lose_what_is_under_way) {
  lines_[id].client_open = false;
  const auto end = [this, id] {
    if (std::exchange(lines_[id].server_open, false)) core_->disconnected(id, "its connection was closed", now_);
  };
  if (lose_what_is_under_way) return at_server(now_, end);
  at_server(arrival(lines_[id].up), end);
}

inline void Network::at_server(Time time, std::function<void()> action) {
  at(time, [this, action = std::move(action)] {
    backlog_.push_back(action);
    work_off();
  });
}

// In the order in which it has come.
inline void Network::work_off() {
  if (now_ < frozen_until_) return at(frozen_until_, [this] { work_off(); });
  while (!backlog_.empty()) {
    const auto action = std::move(backlog_.front());
    backlog_.pop_front();
    action();
  }
}

inline void Network::hold(ConnectionId id, Time until) {
  Line& line = lines_[id];
  line.up = std::max(line.up, until);
  line.down = std::max(line.down, until);
}

inline void Network::replace_server(milliseconds away) {
  away_until_ = now_ + away;
  for (auto& [id, line] : lines_) {
    if (std::exchange(line.server_open, false)) close(id);
  }
  options_.room.name = "server" + std::to_string(last_);
  core_.emplace(options_, static_cast<Output&>(*this));
}

inline void Network::send(ConnectionId id, std::string head, SharedBody body) {
  std::string bytes = body ? head + body->bytes() : head;
  if (const auto& tls = lines_[id].tls) {
    tls->tls().write(as_bytes(bytes));
    bytes = tls->output().take();
  }
  for (const std::string& piece : pieces(bytes)) {
    at(arrival(lines_[id].down), [this, id, piece] {
      if (lines_[id].client_open) lines_[id].handler.bytes(as_bytes(piece));
    });
  }
}

inline void Network::close(ConnectionId id) {
  lines_[id].server_open = false;
  at(arrival(lines_[id].down), [this, id] {
    if (std::exchange(lines_[id].client_open, false)) lines_[id].handler.end();
  });
}

inline void Network::run(Time until) {
  for (;;) {
    const auto timer = std::max(core_->next_timer().value_or(Time::max()), frozen_until_);
    const auto event = events_.empty() ? Time::max() : events_.begin()->first;
    if (std::min(timer, event) > until) return;
    now_ = std::max(now_, std::min(timer, event));
    if (timer <= event) {
      core_->tick(now_);
    } else {
      const auto next = events_.extract(events_.begin());
      next.mapped()();
    }
  }
}

}  // namespace rondo::rendezvous::test
