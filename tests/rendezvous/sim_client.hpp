// SPDX-License-Identifier: Apache-2.0
// A client in simulated time that does what client.cpp does with sockets and a thread: calls with deadlines, leases,
// and a return to a server that went away or came back as another.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/client_impl.hpp"
#include "rendezvous/written.hpp"
#include "tests/rendezvous/simulation.hpp"

namespace rondo::rendezvous::test {

inline constexpr milliseconds kLease{1000};

class SimClient {
 public:
  using Outcome = std::variant<proto::Reply, Error>;
  using Done = std::function<void(Outcome)>;

  SimClient(Network& network, const std::optional<Secret>& secret) : network_(network), secret_(secret) {}

  void start() { attempt(); }
  // `done` is called once, later; or never, where this has ended.
  void call(proto::Request request, milliseconds timeout, Done done) {
    const std::uint64_t id = ++last_id_;
    const Time deadline = network_.now() + timeout;
    const auto place = pending_.emplace(id, Pending{std::move(request), deadline, 0, std::move(done)}).first;
    if (connected_) send(id, place->second);
    if (broken_) return finish(id, Error(ErrorCode::peer_lost, "the server is gone"));
    network_.after(timeout + kGrace,
                   [this, id] { finish(id, Error(ErrorCode::timeout, "the server does not answer")); });
  }
  // With which a member comes back.
  static proto::Join again(proto::Join join, const proto::Membership& given) {
    join.set_again(true);
    join.set_rank(
        static_cast<std::int32_t>(join.enlists() ? given.job_ranks(static_cast<int>(given.rank())) : given.rank()));
    join.set_world_size(static_cast<std::int32_t>(join.enlists() ? given.job_world_size() : given.world_size()));
    join.set_generation(given.generation());
    return join;
  }
  // From here on it comes back.
  void is_member(proto::Join join, const proto::Membership& given) {
    membership_ = again(std::move(join), given);
    server_ = given.server();
  }
  // Another server is to hear what that client has written and was answered.
  std::vector<proto::Told> inherit(const SimClient& before) {
    written_ = before.written_;
    return written_.all();
  }
  void keep_lease() {
    if (!std::exchange(beats_, true)) beat();
  }

  void lose_connection(bool lose_what_is_under_way) {
    if (ended_ || connection_ == 0) return;
    network_.cut(connection_, lose_what_is_under_way);
    broke();
  }
  void hold_up(milliseconds duration) {
    if (connection_ != 0) network_.hold(connection_, network_.now() + duration);
  }
  void fall_silent() { silent_ = true; }
  void die(bool lose_what_is_under_way) {
    ended_ = true;
    pending_.clear();
    if (connection_ != 0) network_.cut(connection_, lose_what_is_under_way);
  }
  void leave() {
    if (ended_) return;
    if (connected_) {
      proto::Request request;
      request.mutable_leave();
      network_.send(connection_, session_->request(0, request));
    }
    die(false);
  }

 private:
  static constexpr milliseconds kGrace{1000}, kTryWithin{1000}, kAnswerWithin{5000}, kFirstTry{5}, kLastTry{250};
  struct Pending {
    proto::Request request;
    Time deadline;
    std::uint64_t sent_over;  // the connection; 0: none
    Done done;
  };

  void attempt() {
    if (ended_) return;
    session_ = std::make_unique<ClientSession>(secret_, "sim");
    introducing_ = 0;
    const std::uint64_t life = ++life_;
    connection_ = network_.connect({[this, life](auto bytes) {
                                      if (life == life_ && !silent_ && !ended_) hear(bytes);
                                    },
                                    [this, life] {
                                      if (life == life_ && !ended_) broke();
                                    }});
    network_.send(connection_, session_->hello());
    give_up_within(kTryWithin, [this] { return !session_->ready(); });
  }
  void give_up_within(milliseconds patience, std::function<bool()> waits) {
    network_.after(patience, [this, life = life_, waits = std::move(waits)] {
      if (life != life_ || ended_ || silent_ || !waits()) return;
      network_.cut(connection_, false);
      broke();
    });
  }
  void broke() {
    connected_ = false;
    connection_ = 0;
    ++life_;
    if (!membership_ && was_there_) {
      broken_ = true;
      while (!pending_.empty()) finish(pending_.begin()->first, Error(ErrorCode::peer_lost, "the server is gone"));
      return;
    }
    network_.after(pause_, [this, life = life_] {
      if (life == life_) attempt();
    });
    pause_ = std::min(2 * pause_, kLastTry);
  }

  void hear(std::span<const std::byte> bytes) {
    std::string to_send;
    std::vector<ClientSession::Answer> answers;
    const bool was_ready = session_->ready();
    const std::uint64_t life = life_;
    session_->received(bytes, to_send, answers);
    if (!to_send.empty()) network_.send(connection_, to_send);
    if (!was_ready && session_->ready()) be_ready();
    for (auto& answer : answers) {
      if (life != life_ || ended_) return;
      take_answer(answer);
    }
  }
  void take_answer(ClientSession::Answer& answer) {
    if (answer.request == 0) {  // it closes
      network_.cut(connection_, false);
      return broke();
    }
    if (answer.request == introducing_) return take(answer.reply);
    const auto asked = pending_.find(answer.request);
    if (asked == pending_.end()) return;
    written_.note(asked->second.request, answer.reply);
    if (answer.reply.has_failure()) return finish(answer.request, error_of(answer.reply.failure()));
    finish(answer.request, std::move(answer.reply));
  }
  void be_ready() {
    if (!membership_) {
      connected_ = was_there_ = true;
      for (auto& [id, pending] : pending_) send(id, pending);
      return;
    }
    introducing_ = ++last_id_;
    proto::Request join;
    *join.mutable_join() = *membership_;
    network_.send(connection_, session_->request(introducing_, join));
    give_up_within(kAnswerWithin, [this] { return !connected_; });
  }
  // As Client::Impl::take() has it.
  void take(const proto::Reply& joined) {
    if (joined.has_failure()) {
      membership_.reset();
      network_.cut(connection_, false);
      return broke();
    }
    const bool knows_all = joined.membership().server() == server_;
    server_ = joined.membership().server();
    for (const proto::Told& told : written_.all()) {
      proto::Request request;
      *request.mutable_told() = told;
      if (!knows_all) network_.send(connection_, session_->request(++last_id_, request));
    }
    connected_ = true;
    pause_ = kFirstTry;
    std::vector<std::uint64_t> broken;
    for (auto& [id, pending] : pending_) {
      if (knows_all && pending.sent_over != 0 && !may_be_asked_twice(pending.request))
        broken.push_back(id);
      else
        send(id, pending);
    }
    for (const std::uint64_t id : broken)
      finish(id, Error(ErrorCode::peer_lost, "the connection to the server broke during this call"));
  }

  void send(std::uint64_t id, Pending& pending) {
    const auto left = std::chrono::ceil<milliseconds>(std::max(pending.deadline - network_.now(), Time::duration(0)));
    pending.request.set_timeout_ms(static_cast<std::uint64_t>(left.count()));
    pending.sent_over = life_;
    network_.send(connection_, session_->request(id, pending.request));
  }
  void finish(std::uint64_t id, Outcome outcome) {
    auto pending = pending_.extract(id);
    if (pending.empty() || ended_ || silent_) return;
    network_.after(milliseconds(0), [done = std::move(pending.mapped().done), outcome = std::move(outcome)] {
      if (done) done(outcome);
    });
  }
  void beat() {
    if (ended_ || silent_) return;
    if (connected_) {
      proto::Request request;
      request.mutable_heartbeat();
      network_.send(connection_, session_->request(0, request));
    }
    network_.after(kLease / 4, [this] { beat(); });
  }

  Network& network_;
  const std::optional<Secret>& secret_;
  std::unique_ptr<ClientSession> session_;
  ConnectionId connection_ = 0;
  std::uint64_t life_ = 0, last_id_ = 0, introducing_ = 0;
  std::map<std::uint64_t, Pending> pending_;
  std::optional<proto::Join> membership_;
  std::string server_;
  Written written_;
  milliseconds pause_ = kFirstTry;
  bool connected_ = false, was_there_ = false, broken_ = false, ended_ = false, silent_ = false, beats_ = false;
};

}  // namespace rondo::rendezvous::test
