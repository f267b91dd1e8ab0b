// SPDX-License-Identifier: Apache-2.0
// A process in simulated time: it calls the server, waits, and may be troubled. What it does is a coroutine, so that it
// reads as the real one does.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/rendezvous/sim_client.hpp"
#include "tests/rendezvous/sim_life.hpp"
#include "tests/rendezvous/task.hpp"

namespace rondo::rendezvous::test {

inline constexpr milliseconds kPatienceOfMembers{60'000};

class SimProcess {
 public:
  SimProcess(Network& network, const std::optional<Secret>& secret) : network_(network), secret_(secret) {
    add_client();
  }
  virtual ~SimProcess() = default;
  SimProcess(const SimProcess&) = delete;
  SimProcess& operator=(const SimProcess&) = delete;

  void start() {
    if (life_.ended || dead_) return;
    client().start();
    task_ = live();
    task_.start();
  }
  void die(bool lose_what_is_under_way) {
    if (!begins_trouble()) return;
    dead_ = true;
    client().die(lose_what_is_under_way);
    vanish();
  }
  void fall_silent() {
    if (!begins_trouble()) return;
    dead_ = true;
    client().fall_silent();
    vanish();
  }
  void lose_connection(bool lose_what_is_under_way) {
    if (begins_trouble()) client().lose_connection(lose_what_is_under_way);
  }
  void hold_up(milliseconds duration) {
    if (begins_trouble()) client().hold_up(duration);
  }

  const Life& life() const { return life_; }
  bool troubled() const { return troubled_; }
  bool dead() const { return dead_; }

 protected:
  virtual Task<bool> live() = 0;
  virtual void depart() = 0;  // what others see at once of one that is no more

  SimClient& client() { return *clients_.back(); }
  SimClient& add_client() { return *clients_.emplace_back(std::make_unique<SimClient>(network_, secret_)); }
  void vanish() {
    ++ticket_;
    depart();
  }

  template <class T>
  struct Waiting {
    using Outcome = std::variant<T, Error>;
    SimProcess& process;
    std::function<void(std::function<void(Outcome)>)> begin;
    std::optional<Outcome> outcome{};
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> self) {
      begin([this, self, &owner = process, ticket = ++process.ticket_](Outcome result) {
        if (ticket != owner.ticket_) return;  // it is dead
        outcome = std::move(result);
        self.resume();
      });
    }
    T await_resume() {
      if (const Error* error = std::get_if<Error>(&*outcome)) throw Error(*error);
      return std::get<T>(std::move(*outcome));
    }
  };
  Waiting<proto::Reply> call(proto::Request request, Time deadline = Time::max()) {
    const auto timeout = deadline == Time::max()
                             ? kPatienceOfMembers
                             : std::max(milliseconds(0), std::chrono::ceil<milliseconds>(deadline - network_.now()));
    return {*this, [this, request = std::move(request), timeout](SimClient::Done done) {
              client().call(request, timeout, std::move(done));
            }};
  }
  Waiting<bool> pause(milliseconds duration) {
    return {*this, [this, duration](std::function<void(std::variant<bool, Error>)> done) {
              network_.after(duration, [done] { done(true); });
            }};
  }
  Waiting<bool> never() {
    return {*this, [](const auto&) {}};
  }

  void note_duration(const std::string& what, Time begun) {
    const auto took = std::chrono::floor<milliseconds>(network_.now() - begun);
    if (took > life_.longest) life_.longest = took, life_.longest_what = what;
  }
  template <class... Parts>
  void note(fmt::format_string<Parts...> format, Parts&&... parts) {
    life_.log +=
        fmt::format("\n  {:6} ms: ", std::chrono::floor<milliseconds>(network_.now().time_since_epoch()).count()) +
        fmt::format(format, std::forward<Parts>(parts)...);
  }

  Network& network_;
  std::vector<std::unique_ptr<SimClient>> clients_;  // the last is in use
  Life life_{};
  bool dead_ = false;

 private:
  bool begins_trouble() {
    if (dead_ || life_.ended) return false;
    return troubled_ = true;
  }

  const std::optional<Secret>& secret_;
  std::uint64_t ticket_ = 0;
  bool troubled_ = false;
  Task<bool> task_{};
};

}  // namespace rondo::rendezvous::test
