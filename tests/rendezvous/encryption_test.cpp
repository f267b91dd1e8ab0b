// SPDX-License-Identifier: Apache-2.0
// Encrypted connections to a server, with somebody in between who keeps and changes what goes by.
#include <string>

#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/relay.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;
using namespace std::chrono_literals;
using rondo::test::expect;
using rondo::test::Relay;

namespace {

struct EncryptedJob {
  Relay relay{};
  Secret secret = Secret::generate();
  bool encrypted;
  Server server;
  std::uint16_t port = relay.port_to(server.port());
  explicit EncryptedJob(bool encrypts = true)
      : encrypted(encrypts), server({.secret = secret, .encrypted = encrypts, .job = "test"}) {}
  Endpoint endpoint() const {
    return {.host = "127.0.0.1", .port = port, .secret = secret, .job = "test", .encrypted = encrypted};
  }
  std::shared_ptr<Client> client() const { return Client::connect(endpoint(), in(20s)); }
};

std::string long_text(char letter) { return std::string(40'000, letter) + "what only ranks may know"; }

}  // namespace

TEST_CASE("who keeps all bytes of a rendezvous reads them, and when they are encrypted does not") {
  const bool encrypts = GENERATE(false, true);
  const EncryptedJob job(encrypts);
  in_threads(3, [&](int i) {
    const auto client = job.client();
    client->set("the key " + std::to_string(i), bytes(long_text('v')));
    expect(text(client->get("the key " + std::to_string((i + 1) % 3), in(20s))) == long_text('v'), "another value");
    const auto all = client->exchange("the exchange", i, 3, bytes(long_text(static_cast<char>('a' + i))), in(20s));
    for (int j = 0; j < 3; ++j)
      expect(text(all[static_cast<std::size_t>(j)]) == long_text(static_cast<char>('a' + j)), "another part");
    client->barrier("the barrier", i, 3, in(20s));
  });
  for (const char* words : {"what only ranks may know", "the key 1", "the exchange", "the barrier"}) {
    CAPTURE(words);
    CHECK(job.relay.heard(words) == !encrypts);
  }
}

TEST_CASE("an encrypted reply that is longer than sockets take at once arrives") {
  const EncryptedJob job;
  constexpr int kParts = 30;  // each connection gets as many of them, fifteen times
  const auto client = job.client(), other = job.client();
  const std::string part = long_text('p');
  std::vector<std::future<void>> calls;
  for (int i = 0; i < kParts; ++i) {
    calls.push_back(std::async(std::launch::async, [&, i, from = i % 2 == 0 ? client : other] {
      const auto all = from->exchange("large", i, kParts, bytes(part), in(20s));
      for (const auto& one : all) {
        if (text(one) != part) throw std::runtime_error("wrong bytes");
      }
    }));
  }
  for (auto& call : calls) call.get();
}

TEST_CASE("a server that encrypts and a client that does not refuse each other by name, and the other way round") {
  const bool encrypts = GENERATE(false, true);
  const EncryptedJob job(encrypts);
  Endpoint endpoint = job.endpoint();
  endpoint.encrypted = !encrypts;
  const std::string error = error_of([&] { Client::connect(endpoint, in(20s)); });
  CHECK(contains(error, encrypts ? "the server encrypts its connections and the client does not"
                                 : "the client encrypts its connections and the server does not"));
  CHECK(contains(error, "start all of a job with RONDO_ENCRYPT=1, or none"));
}

TEST_CASE("without a secret there is no encryption") {
  const std::string sentence =
      "RONDO_ENCRYPT=1 needs the job's secret, from which its keys are made, and there is none";
  CHECK(contains(error_of([] { const Server server({.encrypted = true, .job = "test"}); }), sentence));
  const Job open;
  Endpoint endpoint = open.endpoint();
  endpoint.secret.reset();
  endpoint.encrypted = true;
  CHECK(contains(error_of([&] { Client::connect(endpoint, in(20s)); }), sentence));
}

TEST_CASE("a byte that is changed between a client and its server ends the connection, with that reason") {
  const bool up = GENERATE(false, true);
  EncryptedJob job;
  const auto client = job.client();
  client->set("before", bytes("1"));
  job.relay.change_one([&, up](const Relay::Conversation& line, std::string_view piece) {
    // What the pieces of the two directions are is told by their lengths: the request is short, or the reply is.
    return !line.up.empty() && (up ? piece.size() > 30'000 : piece.size() < 1'000 && line.up.size() > 30'000);
  });
  const std::string error = error_of([&] { client->set("long", bytes(long_text('x'))); });
  CHECK(job.relay.has_changed());
  CHECK(contains(error, "was changed on its way"));
  CHECK(contains(error_of([&] { client->get("long", in(1s)); }), "was changed on its way"));
  CHECK(text(job.client()->get("before", in(20s))) == "1");
}
