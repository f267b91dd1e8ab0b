// SPDX-License-Identifier: Apache-2.0
// Ranks whose connections are encrypted, with somebody in between who keeps and changes what goes by.
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "comm/setup/card.hpp"
#include "comm/setup/local_store.hpp"
#include "comm/transport/addresses.hpp"
#include "comm/transport/mesh.hpp"
#include "rendezvous/tls_socket.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/comm/transport/fakes.hpp"
#include "tests/package/sequence.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/relay.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;
using rendezvous::Secret;

namespace {

// What a rank says of itself goes through here: its peers find the relay at its address.
class MisleadingStore final : public LocalMember {
 public:
  MisleadingStore(std::shared_ptr<LocalStore> store, int rank, Relay& relay)
      : LocalMember(std::move(store), rank), relay_(relay) {}
  std::vector<Bytes> exchange(std::string_view name, int index, int participants, std::span<const std::byte> value,
                              Deadline deadline) override {
    if (!name.ends_with("/cards")) return LocalMember::exchange(name, index, participants, value, deadline);
    comm::Card card = comm::Card::decode({value.begin(), value.end()}, comm::transports().size());
    Advertisement told = decode_advertisement(card.mesh, index);
    for (SocketAddress& address : told.addresses) {
      auto& inner = reinterpret_cast<sockaddr_in&>(address.storage);
      inner.sin_port = htons(relay_.port_to(ntohs(inner.sin_port)));
    }
    card.mesh = encode(told);
    return LocalMember::exchange(name, index, participants, card.encode(), deadline);
  }

 private:
  Relay& relay_;
};

struct World {
  NodeNames nodes;
  std::vector<bool> encrypts{};  // by rank; none: all of them
  Relay* relay = nullptr;
  std::chrono::milliseconds timeout = 20s;
};

std::vector<std::exception_ptr> run(const World& world, const Body& body) {
  const auto place = std::make_shared<LocalStore>();
  const Secret secret = Secret::from_hex(std::string(64, 'b'));
  std::vector<std::exception_ptr> errors(world.nodes.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < world.nodes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Options options;
        options.node = world.nodes[rank];
        options.timeout = options.join_timeout = world.timeout;
        Bootstrap bootstrap;
        bootstrap.rank = static_cast<int>(rank);
        bootstrap.world_size = static_cast<int>(world.nodes.size());
        bootstrap.store = place;
        if (world.relay != nullptr)
          bootstrap.store = std::make_shared<MisleadingStore>(place, bootstrap.rank, *world.relay);
        bootstrap.authenticator = rendezvous::make_authenticator(secret, "test");
        if (world.encrypts.empty() || world.encrypts[rank])
          bootstrap.encryption = rendezvous::make_encryption(secret, "test");
        Communicator comm = make_communicator(std::move(bootstrap), options);
        body(comm);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

const NodeNames kTwo{"a", "b"};

std::vector<char> pattern_of(std::size_t bytes) {
  constexpr std::string_view kPattern = "weights of a model that is worth a lot. ";
  std::vector<char> text(bytes);
  for (std::size_t i = 0; i < bytes; ++i) text[i] = kPattern[i % kPattern.size()];
  return text;
}
constexpr std::string_view kSeen = "a model that is worth";

// By the byte of the first message that says what a connection is for.
bool is(const Relay::Conversation& conversation, MeetingChannel channel) {
  constexpr std::size_t kChannelAt = 32;
  return conversation.up.size() > kHelloBytes && conversation.up[kChannelAt] == static_cast<char>(channel);
}

}  // namespace

TEST_CASE("encrypted: every collective gives the same as elsewhere, whatever steps there are") {
  const auto nodes = GENERATE(NodeNames{"a", "b"}, NodeNames{"a", "b", "c"}, NodeNames{"a", "a", "b", "b"});
  const char* const slice = GENERATE("64", "131072");
  const Setting small("RONDO_SLICE_BYTES", slice), few("RONDO_FIFO_SLOTS", "2");
  const auto seed = static_cast<std::uint64_t>(nodes.size());
  for (const auto& error : run({.nodes = nodes}, [&](Communicator& comm) { consumer::run_sequence(comm, seed, 25); }))
    CHECK(sentence_of(error) == "");
}

TEST_CASE("encrypted: long and short messages, both ways at once") {
  const auto errors = run({.nodes = {"a", "b", "c"}}, [](Communicator& comm) {
    const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
    for (const std::size_t count : {1UL, 2000UL, 3'000'001UL}) {
      std::vector<int> mine(count, comm.rank()), theirs(count, -1);
      auto group = comm.group();
      group.send(std::span<const int>(mine), next);
      group.recv(std::span<int>(theirs), previous);
      group.end();
      if (theirs != std::vector<int>(count, previous)) throw std::runtime_error("wrong bytes");
    }
    std::vector<std::int64_t> sum(1'000'000, comm.rank() + 1);
    comm.all_reduce(std::span(sum), ReduceOp::sum);
    if (sum != std::vector<std::int64_t>(sum.size(), 6)) throw std::runtime_error("wrong sum");
  });
  for (const auto& error : errors) CHECK(sentence_of(error) == "");
}

TEST_CASE("who keeps all bytes between two ranks reads them, and when they are encrypted does not") {
  const bool encrypts = GENERATE(false, true);
  for (const MeetingChannel channel : {MeetingChannel::data, MeetingChannel::messages, MeetingChannel::control}) {
    Relay relay;
    const auto errors =
        run({.nodes = kTwo, .encrypts = {encrypts, encrypts}, .relay = &relay}, [&](Communicator& comm) {
          auto text = pattern_of(comm.rank() == 0 ? 100'000 : 0);
          text.resize(100'000);
          if (channel == MeetingChannel::data) comm.broadcast(std::span(text), 0);
          if (channel == MeetingChannel::messages && comm.rank() == 0) comm.send(std::span<const char>(text), 1);
          if (channel == MeetingChannel::messages && comm.rank() == 1) comm.recv(std::span(text), 0);
          if (channel == MeetingChannel::control) {
            comm.broadcast(std::span(text).first(comm.rank() == 0 ? 7 : 9), 0);
            comm.barrier();  // rank 0 is told what rank 1 has found
          }
          if (text != pattern_of(100'000)) throw std::runtime_error("wrong bytes");
        });
    std::string words(kSeen);
    if (channel == MeetingChannel::control) {  // what one rank finds wrong it tells the other
      REQUIRE(code_of(errors[1]) == ErrorCode::mismatch);
      words = sentence_of(errors[1]).substr(0, 30);
    } else {
      for (const auto& error : errors) CHECK(sentence_of(error) == "");
    }
    CAPTURE(static_cast<int>(channel), words);
    bool spoke = false;
    for (const Relay::Conversation& conversation : relay.heard()) spoke = spoke || is(conversation, channel);
    CHECK(spoke);
    CHECK(relay.heard(words) == !encrypts);
  }
}

TEST_CASE("a byte that is changed between two ranks ends in an error that names the connection") {
  const auto channel = GENERATE(MeetingChannel::data, MeetingChannel::messages);
  const bool is_first = GENERATE(true, false);  // the piece with that byte
  Relay relay;
  std::atomic<bool> wrong{false};
  const auto errors = run({.nodes = kTwo, .relay = &relay}, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0)
      relay.change_one([&, pieces = 0](const Relay::Conversation& line, std::string_view piece) mutable {
        return is(line, channel) && piece.size() > 64 && ++pieces == (is_first ? 1 : 3);
      });
    comm.barrier();
    auto text = pattern_of(comm.rank() == 0 ? 1'000'000 : 0);
    text.resize(1'000'000);
    for (int round = 0; round < 20; ++round) {
      if (channel == MeetingChannel::data) comm.broadcast(std::span(text), 0);
      if (channel == MeetingChannel::messages && comm.rank() == 0) comm.send(std::span<const char>(text), 1);
      if (channel == MeetingChannel::messages && comm.rank() == 1) comm.recv(std::span(text), 0);
      wrong = wrong || text != pattern_of(1'000'000);
    }
    comm.barrier();  // who only sends may be through by now
    throw std::runtime_error("no error");
  });
  CHECK(relay.has_changed());
  CHECK_FALSE(wrong);
  for (const auto& error : errors) {
    CHECK(code_of(error) == ErrorCode::corrupt_message);
    CHECK_THAT(sentence_of(error),
               Catch::Contains(std::string("what went over the encrypted ") +
                               (channel == MeetingChannel::data ? "data" : "message") + " connection with rank "));
    CHECK_THAT(sentence_of(error), Catch::Contains("was changed on its way"));
  }
}

TEST_CASE("a byte that is changed in what ranks tell each other beside their calls ends in such an error") {
  Relay relay;
  relay.change_one([](const Relay::Conversation& line, std::string_view piece) {
    return is(line, MeetingChannel::control) && piece.size() > 600;  // longer than what meetings say
  });
  const auto errors = run({.nodes = kTwo, .relay = &relay}, [](Communicator& comm) {
    std::vector<int> data(1);
    if (comm.rank() == 0) comm.all_reduce(std::span(data), ReduceOp::sum);  // and says that it waits
    if (comm.rank() == 1) comm.recv(std::span(data), 0);
  });
  CHECK(relay.has_changed());
  bool named = false;
  for (const auto& error : errors) {
    const std::string sentence = sentence_of(error);
    CHECK(sentence != "");
    named = named || sentence.find("the encrypted control connection with rank") != std::string::npos;
  }
  CHECK(named);
}

TEST_CASE("who encrypts does not meet whom that would not, and both are named") {
  const auto errors = run({.nodes = {"a", "b", "c"}, .encrypts = {true, false, true}}, [](Communicator&) {});
  for (const auto& error : errors) {
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(culprit_of(error) == 1);
    CHECK(
        sentence_of(error) ==
        "rank 0 encrypts its connections and rank 1 does not: start all ranks of a job with RONDO_ENCRYPT=1, or none");
  }
}

TEST_CASE("a mesh of which one end encrypts does not come about") {
  const Secret secret = Secret::from_hex(std::string(64, 'b'));
  MeshOptions options;
  options.world_size = 2;
  options.name = "test";
  options.authenticator = rendezvous::make_authenticator(secret, "test");
  Mesh plain(options);
  options.rank = 1;
  options.encryption = rendezvous::make_encryption(secret, "test");
  Mesh encrypted(options);
  const std::vector<Store::Bytes> told{plain.advertisement(), encrypted.advertisement()};
  std::array<std::exception_ptr, 2> errors;
  std::thread other(
      [&] { errors[1] = thrown_by([&] { encrypted.connect(told, std::array{MeshWish{.rank = 0}}, in(400ms)); }); });
  errors[0] = thrown_by([&] { plain.connect(told, std::array{MeshWish{.rank = 1}}, in(400ms)); });
  other.join();
  for (const auto& error : errors) CHECK(code_of(error) == ErrorCode::timeout);
}
