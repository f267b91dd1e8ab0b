// SPDX-License-Identifier: Apache-2.0
// Jobs of simulated clients: each joins, counts, exchanges, meets at a barrier, and asks who survived when that
// fails. Whatever breaks on the way, every client's every request ends, and what is said is consistent.
#include "tests/rendezvous/simulation.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

namespace {

enum class Fault { none, die, die_and_return, join_twice, replay, fall_silent };
constexpr milliseconds kJoinWithin{5000}, kExchangeWithin{30'000}, kLease{1000};
constexpr milliseconds kNoticed{500};  // some round trips on this network

// What all clients of one job have seen.
struct Findings {
  std::map<int, proto::Membership> memberships;
  std::map<int, std::vector<std::string>> exchanged;
  std::map<int, std::vector<int>> survivors;
  std::map<int, std::string> errors;
  std::map<int, Time> ended;
  int counted = 0, count_attempts = 0;
};

class SimClient {
 public:
  SimClient(Network& network, Findings& findings, const Secret& secret, bool encrypted, int index, int world_size,
            bool given_rank)
      : network_(network),
        findings_(findings),
        secret_(secret),
        encrypted_(encrypted),
        index_(index),
        world_size_(world_size),
        given_rank_(given_rank) {}

  void start() {
    session_ = std::make_unique<ClientSession>(secret_, "sim", encrypted_);
    step_ = Step::join;
    connection_ = network_.connect({[this](auto bytes) { hear(bytes); }, [this] { end("closed by the server"); }});
    network_.send(connection_, session_->hello());
    ++events_;
  }
  void fail_at(Fault fault, int event) {
    fault_ = fault;
    fault_event_ = event;
  }
  bool is_victim() const { return fault_ != Fault::none; }
  bool struck() const { return struck_; }
  Time struck_at() const { return struck_at_; }
  bool was_member() const { return membership_seen_; }

 private:
  enum class Step { join, count, exchange, barrier, survivors, done };

  void hear(std::span<const std::byte> bytes) {
    if (silent_ || step_ == Step::done) return;
    if (++events_ >= fault_event_ && !struck_ && is_victim() && strike()) return;
    std::string to_send;
    std::vector<ClientSession::Answer> answers;
    const bool was_ready = session_->ready();
    session_->received(bytes, to_send, answers);
    if (!was_ready && session_->ready()) to_send += ask();
    if (!to_send.empty()) network_.send(connection_, to_send);
    for (const auto& answer : answers) {
      if (step_ != Step::done) take(answer);
    }
  }

  // True when this client does nothing more with the bytes at hand.
  bool strike() {
    struck_ = true;
    struck_at_ = network_.now();
    switch (fault_) {
      case Fault::none:
        return false;
      case Fault::die:
      case Fault::die_and_return:
        network_.cut(connection_, network_.draw(0, 1) == 0);
        if (fault_ == Fault::die) {
          step_ = Step::done;
          return true;
        }
        network_.after(milliseconds(network_.draw(0, 200)), [this] { start(); });
        return true;
      case Fault::join_twice: {  // another connection of the same process, and the first stays
        auto twin = std::make_unique<SimClient>(network_, twin_findings_, secret_, encrypted_, index_, world_size_,
                                                given_rank_);
        twin->start();
        twin_ = std::move(twin);
        return false;
      }
      case Fault::replay:
        replaying_ = true;
        return false;
      case Fault::fall_silent:
        silent_ = true;
        return true;
    }
    return false;
  }

  std::string ask() {
    proto::Request request;
    switch (step_) {
      case Step::join:
        fill(*request.mutable_join());
        request.set_timeout_ms(static_cast<std::uint64_t>(kJoinWithin.count()));
        network_.after(kLease / 4, [this] { beat(); });
        break;
      case Step::count:
        request.mutable_add()->set_key("n");
        request.mutable_add()->set_amount(1);
        ++findings_.count_attempts;
        break;
      case Step::exchange:
        fill(*request.mutable_exchange(), "x");
        request.set_timeout_ms(static_cast<std::uint64_t>(kExchangeWithin.count()));
        break;
      case Step::barrier:
        fill(*request.mutable_barrier(), "b");
        request.set_timeout_ms(static_cast<std::uint64_t>(kExchangeWithin.count()));
        break;
      case Step::survivors:
        request.mutable_survivors()->set_name("world");
        request.mutable_survivors()->set_index(static_cast<std::uint32_t>(rank_));
        for (int i = 0; i < world_size_; ++i) request.mutable_survivors()->add_members(static_cast<std::uint32_t>(i));
        request.set_timeout_ms(static_cast<std::uint64_t>(kExchangeWithin.count()));
        break;
      case Step::done:
        request.mutable_leave();
    }
    const std::string frame = session_->request(++last_request_, request);
    return std::exchange(replaying_, false) ? frame + frame : frame;
  }

  void fill(proto::Join& join) const {
    join.set_rank(given_rank_ ? index_ : -1);
    join.set_world_size(world_size_);
    join.set_local_rank(-1);
    join.set_node("node" + std::to_string(index_ % 3));
    join.set_host("host");
    join.set_pid(static_cast<std::uint32_t>(1000 + index_));
    join.set_lease_ms(static_cast<std::uint32_t>(kLease.count()));
    join.set_instance("process" + std::to_string(index_));
  }
  void fill(proto::Gather& gather, const char* name) const {
    gather.set_name(name);
    gather.set_index(static_cast<std::uint32_t>(rank_));
    gather.set_participants(static_cast<std::uint32_t>(world_size_));
    gather.set_value("from " + std::to_string(rank_));
  }

  void beat() {
    if (silent_ || step_ == Step::done || !session_->ready()) return;
    proto::Request request;
    request.mutable_heartbeat();
    network_.send(connection_, session_->request(0, request));
    network_.after(kLease / 4, [this] { beat(); });
  }

  void take(const ClientSession::Answer& answer) {
    if (answer.request == 0) return end(answer.reply.failure().sentence());
    REQUIRE(answer.request == last_request_);
    const proto::Reply& reply = answer.reply;
    if (reply.has_failure()) {
      findings_.errors[index_] += reply.failure().sentence() + "\n";
      if (step_ == Step::join || step_ == Step::survivors) return end("");
      step_ = Step::survivors;
      return network_.send(connection_, ask());
    }
    note(reply);
    step_ = static_cast<Step>(static_cast<int>(step_) + 1);
    if (step_ == Step::survivors) step_ = Step::done;  // nothing has failed
    network_.send(connection_, ask());
    if (step_ == Step::done) end("");
  }

  void note(const proto::Reply& reply) {
    if (step_ == Step::join) {
      rank_ = static_cast<int>(reply.membership().rank());
      membership_seen_ = true;
      findings_.memberships[index_] = reply.membership();
    }
    if (step_ == Step::count) ++findings_.counted;
    if (step_ == Step::exchange) findings_.exchanged[rank_] = {reply.values().begin(), reply.values().end()};
    if (step_ == Step::survivors) findings_.survivors[rank_] = {reply.survivors().begin(), reply.survivors().end()};
  }

  void end(const std::string& error) {
    if (!error.empty()) findings_.errors[index_] += error + "\n";
    step_ = Step::done;
    findings_.ended[index_] = network_.now();
    network_.cut(connection_, false);
  }

  Network& network_;
  Findings& findings_;
  Findings twin_findings_{};
  const Secret& secret_;
  bool encrypted_;
  int index_, world_size_;
  bool given_rank_;
  std::unique_ptr<ClientSession> session_;
  std::unique_ptr<SimClient> twin_;
  ConnectionId connection_ = 0;
  Step step_ = Step::join;
  std::uint64_t last_request_ = 0;
  int rank_ = -1, events_ = 0, fault_event_ = 0;
  Fault fault_ = Fault::none;
  bool struck_ = false, silent_ = false, replaying_ = false, membership_seen_ = false;
  Time struck_at_{};
};

struct Outcome {
  Findings findings;
  std::vector<std::unique_ptr<SimClient>> clients;
  std::size_t connections_left = 0, requests_left = 0;
  int victim = -1;
};

Outcome simulate(std::uint64_t seed, Fault fault) {
  static const Secret secret = Secret::generate();
  const bool encrypted = seed % 32 == 0;  // a TLS handshake takes as long as a schedule does without
  Network network(
      seed,
      {.room = {.job = "sim"}, .secret = secret, .encrypted = encrypted, .authenticate_within = milliseconds(2000)});
  const int n = static_cast<int>(network.draw(1, 12));
  const bool given_rank = network.draw(0, 1) == 0;
  Outcome outcome;
  for (int i = 0; i < n; ++i) {
    outcome.clients.push_back(
        std::make_unique<SimClient>(network, outcome.findings, secret, encrypted, i, n, given_rank));
    SimClient* client = outcome.clients.back().get();
    network.after(milliseconds(network.draw(0, 300)), [client] { client->start(); });
  }
  if (fault != Fault::none) {
    outcome.victim = static_cast<int>(network.draw(0, static_cast<std::uint64_t>(n - 1)));
    outcome.clients[static_cast<std::size_t>(outcome.victim)]->fail_at(fault, static_cast<int>(network.draw(1, 14)));
  }
  network.run(Time{} + std::chrono::minutes(5));
  outcome.connections_left = network.core().connection_count();
  outcome.requests_left = network.core().waiting_count();
  return outcome;
}

void check_consistent(const Outcome& outcome) {
  const Findings& seen = outcome.findings;
  const int n = static_cast<int>(outcome.clients.size());
  CHECK(outcome.requests_left == 0);
  std::set<int> ranks;
  for (const auto& [index, membership] : seen.memberships) {
    ranks.insert(static_cast<int>(membership.rank()));
    CHECK(static_cast<int>(membership.world_size()) == n);
    CHECK(static_cast<int>(membership.nodes()) == std::min(n, 3));
  }
  CHECK(ranks.size() == seen.memberships.size());
  for (const auto& [rank, values] : seen.exchanged) {
    REQUIRE(static_cast<int>(values.size()) == n);
    for (int i = 0; i < n; ++i) CHECK(values[static_cast<std::size_t>(i)] == "from " + std::to_string(i));
  }
  for (const auto& [rank, survivors] : seen.survivors) {
    CHECK(survivors == seen.survivors.begin()->second);
    CHECK(std::binary_search(survivors.begin(), survivors.end(), rank));
  }
  for (int i = 0; i < n; ++i) {
    const bool dead = i == outcome.victim && outcome.clients[static_cast<std::size_t>(i)]->struck();
    if (!dead) CHECK(seen.ended.contains(i));
  }
}

std::uint64_t seed_count() {
  const char* text = std::getenv("RONDO_SIM_SEEDS");  // more of them by hand
  return text == nullptr ? 500 : std::strtoull(text, nullptr, 10);
}

void check_victims_end(const Outcome& outcome, Fault fault) {
  const SimClient& victim = *outcome.clients[static_cast<std::size_t>(outcome.victim)];
  if (!victim.struck() || outcome.clients.size() == 1) return;
  if (fault != Fault::die && fault != Fault::fall_silent) return;
  const auto noticed = 4 * kNoticed + (fault == Fault::die ? milliseconds(0) : kLease);
  for (const auto& [rank, survivors] : outcome.findings.survivors)
    CHECK(survivors.size() == outcome.clients.size() - 1);
  for (const auto& [index, ended] : outcome.findings.ended) {
    if (!outcome.findings.errors.contains(index) || index == outcome.victim) continue;
    const std::string& error = outcome.findings.errors.at(index);
    CAPTURE(index, error);
    if (victim.was_member()) {
      CHECK(ended <= std::max(victim.struck_at(), Time{} + milliseconds(300)) + noticed);
      CHECK(contains(error, "pid " + std::to_string(1000 + outcome.victim)));
    } else {
      CHECK((contains(error, "missing ranks") || contains(error, "lost")));
    }
  }
}

}  // namespace

TEST_CASE("without faults every simulated job succeeds") {
  for (std::uint64_t seed = 1; seed <= seed_count(); ++seed) {
    CAPTURE(seed);
    const Outcome outcome = simulate(seed, Fault::none);
    const std::size_t n = outcome.clients.size();
    check_consistent(outcome);
    CHECK(outcome.findings.errors.empty());
    CHECK(outcome.findings.memberships.size() == n);
    CHECK(outcome.findings.exchanged.size() == n);
    CHECK(outcome.findings.counted == static_cast<int>(n));
    CHECK(outcome.connections_left == 0);
  }
}

TEST_CASE("whatever one client does, every request of the others ends, consistently") {
  const Fault fault = GENERATE(Fault::die, Fault::die_and_return, Fault::join_twice, Fault::replay, Fault::fall_silent);
  int struck = 0, failed = 0;
  for (std::uint64_t seed = 1; seed <= seed_count(); ++seed) {
    CAPTURE(static_cast<int>(fault), seed);
    const Outcome outcome = simulate(seed * 1000 + static_cast<std::uint64_t>(fault), fault);
    check_consistent(outcome);
    check_victims_end(outcome, fault);
    CHECK(outcome.findings.counted <= outcome.findings.count_attempts);
    struck += outcome.clients[static_cast<std::size_t>(outcome.victim)]->struck();
    failed += !outcome.findings.errors.empty();
  }
  CHECK(struck > 0);
  if (fault == Fault::die || fault == Fault::fall_silent) CHECK(failed > 0);
}

TEST_CASE("bytes that no client would send harm nobody") {
  static const Secret secret = Secret::generate();
  for (std::uint64_t seed = 1; seed <= seed_count(); ++seed) {
    CAPTURE(seed);
    Network network(seed, {.room = {.job = "sim"}, .secret = secret, .authenticate_within = milliseconds(2000)});
    int closed = 0, spoiled = 0;
    std::vector<std::unique_ptr<ClientSession>> sessions;
    for (int i = 0; i < 20; ++i) {
      ClientSession& session = *sessions.emplace_back(std::make_unique<ClientSession>(secret, "sim"));
      const auto connection = std::make_shared<ConnectionId>();
      const bool early = network.draw(0, 1) == 0;
      const auto spoil = [&network, &spoiled](std::string bytes) {
        ++spoiled;
        bytes[network.draw(0, bytes.size() - 1)] ^= static_cast<char>(1 << network.draw(0, 7));
        if (network.draw(0, 3) == 0) bytes.resize(network.draw(1, bytes.size()));
        return bytes;
      };
      *connection = network.connect({[&network, &session, connection, early, spoil](auto bytes) {
                                       std::string to_send;
                                       std::vector<ClientSession::Answer> answers;
                                       try {
                                         session.received(bytes, to_send, answers);
                                       } catch (const Error&) {
                                         return;  // a refusal; the end follows
                                       }
                                       if (early || !session.ready() || to_send.empty()) return;
                                       proto::Request request;
                                       request.mutable_try_get()->set_key("k");
                                       network.send(*connection, to_send + spoil(session.request(1, request)));
                                     },
                                     [&closed] { ++closed; }});
      network.send(*connection, early ? spoil(session.hello()) : session.hello());
    }
    // A spoiled frame may claim to be longer than it is, and then only the client's end ends it.
    network.run(Time{} + std::chrono::seconds(10));
    CHECK(spoiled == 20);
    CHECK(closed + static_cast<int>(network.core().connection_count()) == 20);
    CHECK(network.core().waiting_count() == 0);
    CHECK_FALSE(network.core().crowded());
  }
}
