// SPDX-License-Identifier: Apache-2.0
// A job in simulated time that meets and goes on through whatever happens: its ranks join, exchange round after round,
// and when one is missing those that are left agree who they are and go on as a smaller communicator. What goes wrong,
// and when, follows from a seed.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/rendezvous/simulation.hpp"

namespace rondo::rendezvous::test {

inline constexpr milliseconds kLeaseOfRanks{1000}, kPatience{60'000};

// What one rank has seen. By communicator, "0" being the world's and a further number for each shrink: its members as
// ranks of the job.
struct Story {
  std::map<std::string, std::vector<int>> members{};
  std::map<std::string, std::vector<std::string>> exchanged{};  // by the exchange's name
  std::vector<proto::Failure> failures{};
  std::string last_words{};  // why it ended; empty: it went all the way
  bool ended = false;
  int shrinks = 0;
};

class SimRank {
 public:
  static constexpr int kRounds = 4;

  SimRank(Network& network, const std::optional<Secret>& secret, int rank, int world_size)
      : network_(network), secret_(secret), rank_(rank), world_size_(world_size) {}

  void start() {
    if (dead_) return;
    if (server_lost_) return end("the server is gone");
    session_ = std::make_unique<ClientSession>(secret_, "sim");
    const int life = ++life_;
    connection_ = network_.connect({[this, life](auto bytes) {
                                      if (life == life_) hear(bytes);
                                    },
                                    [this, life] {
                                      if (life == life_) end("the server has closed the connection");
                                    }});
    network_.send(connection_, session_->hello());
  }
  // What may befall it. Each makes it one that others may go on without.
  void die(bool lose_what_is_under_way) {
    if (dead_ || story_.ended) return;
    dead_ = troubled_ = true;
    ++life_;
    if (connection_ != 0) network_.cut(connection_, lose_what_is_under_way);
  }
  void fall_silent() { silent_ = troubled_ = true; }
  void lose_connection() {  // which a client takes for the end
    if (dead_ || story_.ended || connection_ == 0) return;
    troubled_ = true;
    network_.cut(connection_, network_.draw(0, 1) == 0);
    end("its connection broke");
  }
  void hold_up(milliseconds duration) {
    if (connection_ == 0) return;
    held_up_ += duration;
    troubled_ = troubled_ || held_up_ > kLeaseOfRanks / 4;
    network_.hold(connection_, network_.now() + duration);
  }
  void repeat_next_frame() { repeats_ = troubled_ = true; }
  void lose_server() { server_lost_ = true; }  // who has a connection hears of it

  const Story& story() const { return story_; }
  bool troubled() const { return troubled_; }
  bool gone() const { return dead_ || silent_; }

 private:
  enum class Step { join, exchange, survivors, done };

  void hear(std::span<const std::byte> bytes) {
    if (silent_ || story_.ended) return;
    std::string to_send;
    std::vector<ClientSession::Answer> answers;
    const bool was_ready = session_->ready();
    try {
      session_->received(bytes, to_send, answers);
    } catch (const Error& error) {
      return end(error.what());
    }
    if (!was_ready && session_->ready()) to_send += ask();
    say(to_send);
    for (const auto& answer : answers) {
      if (!story_.ended) take(answer);
    }
  }
  void say(const std::string& bytes) {
    if (!bytes.empty()) network_.send(connection_, bytes);
  }

  std::string ask() {
    proto::Request request;
    request.set_timeout_ms(static_cast<std::uint64_t>(kPatience.count()));
    if (step_ == Step::join) fill(*request.mutable_join());
    if (step_ == Step::exchange) fill(*request.mutable_exchange());
    if (step_ == Step::survivors) fill(*request.mutable_survivors());
    const std::string frame = session_->request(++last_request_, request);
    return std::exchange(repeats_, false) ? frame + frame : frame;
  }
  void fill(proto::Join& join) {
    join.set_rank(rank_);
    join.set_world_size(world_size_);
    join.set_local_rank(-1);
    join.set_node("node" + std::to_string(rank_ % 2));
    join.set_host("host");
    join.set_pid(static_cast<std::uint32_t>(1000 + rank_));
    join.set_lease_ms(static_cast<std::uint32_t>(kLeaseOfRanks.count()));
    join.set_instance("process" + std::to_string(rank_));
    if (!std::exchange(beats_, true)) network_.after(kLeaseOfRanks / 4, [this] { beat(); });
  }
  std::string name() const { return std::to_string(story_.shrinks); }
  const std::vector<int>& members() const { return story_.members.at(name()); }
  std::uint32_t own_index() const {
    return static_cast<std::uint32_t>(std::ranges::find(members(), rank_) - members().begin());
  }
  std::string exchange_name() const { return name() + "/" + std::to_string(round_); }
  void fill(proto::Gather& gather) const {
    gather.set_name(exchange_name());
    gather.set_index(own_index());
    gather.set_participants(static_cast<std::uint32_t>(members().size()));
    gather.set_value(std::to_string(rank_));
  }
  // As shrink() asks: under the name that the survivors' exchanges will have.
  void fill(proto::Survive& survive) const {
    survive.set_name(std::to_string(story_.shrinks + 1));
    survive.set_index(own_index());
    for (const int member : members()) survive.add_members(static_cast<std::uint32_t>(member));
  }

  void beat() {
    if (silent_ || dead_ || story_.ended) return;
    if (session_->ready()) {
      proto::Request request;
      request.mutable_heartbeat();
      network_.send(connection_, session_->request(0, request));
    }
    network_.after(kLeaseOfRanks / 4, [this] { beat(); });
  }

  void take(const ClientSession::Answer& answer) {
    const proto::Reply& reply = answer.reply;
    if (reply.has_failure()) story_.failures.push_back(reply.failure());
    if (answer.request == 0) return end(reply.failure().sentence());
    if (answer.request != last_request_) throw std::logic_error("an answer to what was never asked");
    if (reply.has_failure()) return mind(reply.failure());
    switch (step_) {
      case Step::join:
        for (int rank = 0; rank < world_size_; ++rank) story_.members["0"].push_back(rank);
        return go_on(Step::exchange);
      case Step::exchange:
        story_.exchanged[exchange_name()] = {reply.values().begin(), reply.values().end()};
        if (++round_ == kRounds) return end("");
        return go_on(Step::exchange);
      case Step::survivors:
        take_survivors(reply);
        return go_on(Step::exchange);
      case Step::done:
        return;
    }
  }
  void mind(const proto::Failure& failure) {
    const bool lost = failure.code() == static_cast<std::uint32_t>(ErrorCode::peer_lost);
    if (step_ == Step::exchange && lost) return go_on(Step::survivors);
    end(failure.sentence());
  }
  // Who survived goes on together, with the round that the slowest of them is at: here all exchange from the first.
  void take_survivors(const proto::Reply& reply) {
    std::vector<int> left;
    for (const std::uint32_t index : reply.survivors()) left.push_back(members().at(index));
    ++story_.shrinks;
    story_.members[name()] = left;
    round_ = 0;
  }
  void go_on(Step step) {
    step_ = step;
    const auto pause = milliseconds(network_.draw(0, 30));  // it computes
    const int life = life_;
    network_.after(pause, [this, life] {
      if (life == life_ && !silent_ && !story_.ended) say(ask());
    });
  }
  void end(const std::string& last_words) {
    story_.ended = true;
    story_.last_words = last_words;
    if (last_words.empty()) {
      proto::Request request;
      request.mutable_leave();
      say(session_->request(++last_request_, request));
    }
    step_ = Step::done;
    ++life_;
    if (connection_ != 0) network_.cut(connection_, false);
  }

  Network& network_;
  const std::optional<Secret>& secret_;
  const int rank_, world_size_;
  Story story_{};
  std::unique_ptr<ClientSession> session_;
  ConnectionId connection_ = 0;
  Step step_ = Step::join;
  std::uint64_t last_request_ = 0;
  int round_ = 0, life_ = 0;
  milliseconds held_up_{0};
  bool server_lost_ = false, dead_ = false, silent_ = false, troubled_ = false, repeats_ = false, beats_ = false;
};

}  // namespace rondo::rendezvous::test
