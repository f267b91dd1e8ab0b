// SPDX-License-Identifier: Apache-2.0
// The server's core among clients that send anything, and what a client takes from a server. Without a secret, since
// nobody guesses one: what is behind the handshake is reached all the same.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "rendezvous/client_session.hpp"
#include "rendezvous/core.hpp"
#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;

constexpr const char* kJob = "job";

// Takes what the core says, and checks that it says it to somebody.
class Outside final : public Output {
 public:
  std::set<ConnectionId> open{};
  std::map<ConnectionId, std::string> heard{};

 private:
  void send(ConnectionId connection, std::string head, SharedBody body) override {
    expect(open.contains(connection), "the core speaks to a connection that is gone");
    heard[connection] += body ? head + body->bytes() : head;
  }
  void encrypt(ConnectionId, std::shared_ptr<TlsSession>) override {
    expect(false, "a connection is encrypted where there is no secret to do it with");
  }
  void close(ConnectionId connection) override {
    expect(open.erase(connection) == 1, "the core closes a connection that is gone");
  }
  void drop(ConnectionId connection) override { close(connection); }
};

std::string client_hello() {
  JobKey key(std::nullopt);
  return ClientHandshake().hello(kJob, key).SerializeAsString();
}

// A few clients. What they do is one number and what follows it; most of it says something that a client could say.
class Clients {
 public:
  void act(Script& script) {
    const unsigned what = script.byte();
    const ConnectionId id = 1 + what / 16 % kClients;
    switch (what % 8) {
      case 0:
        return connect(id);
      case 1:
        return leave(id);
      case 2:
        return pass(milliseconds(1) * script.number<std::uint16_t>());
      case 3:
        return hear(id, as_text(script.block()));
      case 4:
        return hear(id, plain_frame(as_text(script.block())));
      default:
        return ask(id, script.byte(), text_of(script.block()));
    }
  }
  // Whatever was asked, nobody waits once all have gone, and time does not stand still.
  void end() {
    for (const ConnectionId id : std::set<ConnectionId>(outside_.open)) {
      outside_.open.erase(id);
      core_.disconnected(id, "the end", now_);
    }
    expect(core_.connection_count() == 0, "connections are left");
    expect(core_.waiting_count() == 0, "requests are left");
    for (const auto& [id, bytes] : outside_.heard) check_frames(bytes);
  }

 private:
  static constexpr unsigned kClients = 5;
  static constexpr int kMostRanks = 64;
  static constexpr std::size_t kStoreBytes = 300;  // which an input fills

  // Ids are new ones, rising: the last one of each client.
  ConnectionId current(ConnectionId client) const {
    const auto found = ids_.find(client);
    return found == ids_.end() ? 0 : found->second;
  }
  void connect(ConnectionId client) {
    leave(client);
    const ConnectionId id = ids_[client] = ++last_;
    outside_.open.insert(id);
    core_.connected(id, "10.0.0.1", now_);
    static const std::string hello = client_hello();
    hear(client, plain_frame(hello) + plain_frame(proto::ClientProof().SerializeAsString()));
  }
  void leave(ConnectionId client) {
    const ConnectionId id = current(client);
    if (outside_.open.erase(id) == 1) core_.disconnected(id, "its connection was closed", now_);
  }
  void hear(ConnectionId client, std::string_view bytes) {
    const ConnectionId id = current(client);
    if (outside_.open.contains(id)) core_.received(id, rendezvous::as_bytes(bytes), now_);
  }
  void ask(ConnectionId client, std::uint64_t request, std::string body) {
    // The ranks that are missing are counted one by one, which takes long for a world of a million.
    static proto::Request join;  // whose memory is used again
    if (join.ParseFromString(body) && join.join().world_size() > kMostRanks) {
      join.mutable_join()->set_world_size(kMostRanks);
      body = join.SerializeAsString();
    }
    hear(client, Seal().head(request, Body(body)) + body);
  }
  void pass(milliseconds time) {
    const Time until = now_ + time;
    for (int ticks = 0; core_.next_timer().value_or(Time::max()) <= until; ++ticks) {
      now_ = std::max(now_, *core_.next_timer());
      core_.tick(now_);
      expect(ticks < 1000, "a timer comes again and again");
    }
    now_ = until;
  }
  // The server's hello or refusal, then replies, each of which can be read.
  static void check_frames(std::string_view bytes) {
    FrameReader reader(kMaxReplyBytes + Seal::kHeadBytes);
    reader.feed(rendezvous::as_bytes(bytes));
    Seal seal;
    for (bool first = true; const auto frame = reader.next(); first = false) {
      proto::ServerHello hello;
      proto::Reply reply;
      const std::string_view body = first ? *frame : seal.open(*frame).body;
      const int length = static_cast<int>(body.size());
      expect(first ? hello.ParseFromArray(body.data(), length) : reply.ParseFromArray(body.data(), length),
             "the server says what nobody can read");
      if (hello.has_refusal()) return;
    }
  }

  Outside outside_;
  Core core_{{.room = {.job = kJob, .store_bytes = kStoreBytes}, .strangers = 3, .greeted = 3}, outside_};
  std::map<ConnectionId, ConnectionId> ids_;
  ConnectionId last_ = 0;
  Time now_{};
};

template <class Fill>
std::string asked(std::uint8_t client, Fill fill, std::uint64_t timeout_ms = 1000) {
  proto::Request request;
  request.set_timeout_ms(timeout_ms);
  fill(request);
  const std::string body = request.SerializeAsString();
  return std::string{static_cast<char>(client * 16 + 5), '\1', static_cast<char>(body.size())} + body;
}
std::string connected(std::uint8_t client) { return {static_cast<char>(client * 16)}; }
std::string gone(std::uint8_t client) { return {static_cast<char>(client * 16 + 1)}; }
const std::string kMinute = {'\2', '\xff', '\xff'};

std::string joined(std::uint8_t client, int rank, int world_size, std::uint32_t generation = 0) {
  return connected(client) + asked(client, [&](proto::Request& request) {
           auto& join = *request.mutable_join();
           join.set_rank(rank);
           join.set_world_size(world_size);
           join.set_local_rank(-1);
           join.set_node("n");
           join.set_host("h");
           join.set_pid(7);
           join.set_lease_ms(300);
           join.set_generation(generation);
           join.set_instance("instance of it " + std::to_string(client));
         });
}

std::string gathered(std::uint8_t client, std::uint32_t index) {
  return asked(client, [&](proto::Request& request) {
    auto& gather = *request.mutable_exchange();
    gather.set_name("x");
    gather.set_index(index);
    gather.set_participants(2);
    gather.set_value("value");
  });
}

std::string survives(std::uint8_t client, std::uint32_t index) {
  return asked(client, [&](proto::Request& request) {
    auto& survive = *request.mutable_survivors();
    survive.set_name("w");
    survive.set_index(index);
    for (const std::uint32_t member : {0, 1}) survive.add_members(member);
  });
}

}  // namespace

void run_rendezvous_core(Bytes input) {
  Script script(input);
  Clients clients;
  while (!script.empty()) clients.act(script);
  clients.end();
}

std::vector<std::string> rendezvous_core_seeds() {
  const std::string world = joined(0, 0, 2) + joined(1, 1, 2);
  const std::string values = connected(0) + asked(0, [](auto& request) { request.mutable_get()->set_key("k"); }) +
                             connected(1) +
                             asked(1,
                                   [](auto& request) {
                                     request.mutable_set()->set_key("k");
                                     request.mutable_set()->set_value("v");
                                   }) +
                             asked(1,
                                   [](auto& request) {
                                     request.mutable_add()->set_key("n");
                                     request.mutable_add()->set_amount(-3);
                                   }) +
                             asked(1,
                                   [](auto& request) {
                                     auto& change = *request.mutable_compare_and_set();
                                     change.set_key("k");
                                     change.set_expected("v");
                                     change.set_desired("w");
                                   }) +
                             asked(1, [](auto& request) { request.mutable_erase()->set_key("k"); });
  return {world + gathered(0, 0) + gathered(1, 1),
          world + gathered(0, 0) + gone(1) + survives(0, 0) + kMinute,
          world + survives(0, 0) + survives(1, 1) + asked(0, [](auto& request) { request.mutable_leave(); }),
          joined(0, -1, 2) + joined(1, -1, 2) + joined(2, -1, 2) + kMinute,
          world + survives(0, 0) + joined(2, 0, 2, 1) + kMinute,
          world + gathered(0, 0) + joined(2, 0, 2, 1) + kMinute,
          joined(0, 0, 2) + joined(1, 0, 2) + gone(0) + joined(0, 1, 3),
          values,
          connected(0) + asked(0, [](auto& request) { request.mutable_heartbeat(); }) + kMinute};
}

// A server says these bytes, in as many pieces as the first byte has it.
void run_rendezvous_client(Bytes input) {
  Script script(input);
  const std::size_t piece = 1 + script.byte();
  ClientSession session(std::nullopt, kJob);
  session.hello();
  std::string to_send;
  std::vector<ClientSession::Answer> answers;
  const Bytes all = script.rest();
  accepts([&] {
    for (std::size_t from = 0; from < all.size(); from += piece) {
      session.received(all.subspan(from, std::min(piece, all.size() - from)), to_send, answers);
    }
  });
  expect(session.ready() || answers.empty(), "a server is believed before it has shaken hands");
  for (const auto& answer : answers) {
    if (!answer.reply.has_failure()) continue;
    accepts([&] { throw error_of(answer.reply.failure()); });
  }
}

std::vector<std::string> rendezvous_client_seeds() {
  JobKey key(std::nullopt);
  const std::string hello = plain_frame(ServerHandshake().answer(client_hello(), kJob, key).SerializeAsString());
  proto::ServerHello refusal;
  fill(*refusal.mutable_refusal(), Error(ErrorCode::timeout, "too many", 3));
  Seal seal;
  const auto sealed = [&](const proto::Reply& reply) {
    const Body body(reply.SerializeAsString());
    return seal.head(1, body) + body.bytes();
  };
  proto::Reply values, failure, membership;
  values.add_values("one");
  values.set_found(true);
  fill(*failure.mutable_failure(), Error(ErrorCode::mismatch, "no", 1));
  membership.mutable_membership()->set_world_size(4);
  membership.add_survivors(2);
  return {"\xff" + hello + sealed(values) + sealed(failure) + sealed(membership),
          "\x03" + plain_frame(refusal.SerializeAsString())};
}

}  // namespace rondo::fuzz
