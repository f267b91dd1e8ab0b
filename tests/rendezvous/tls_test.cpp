// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/tls.hpp"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <rondo/error.hpp>

#include "comm/base/fd.hpp"
#include "rendezvous/tls_socket.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;

namespace {

constexpr std::string_view kPattern = "a pattern that nobody on the way may see. ";

Digest key_of(unsigned char value) {
  Digest key;
  key.fill(std::byte{value});
  return key;
}

// What one end has sent, as the other takes it.
struct Wire final : TlsSource {
  std::string bytes;
  bool ended = false;
  long take(std::span<std::byte> into) override {
    if (bytes.empty()) return ended ? 0 : -EAGAIN;
    const std::size_t taken = std::min(into.size(), bytes.size());
    std::memcpy(into.data(), bytes.data(), taken);
    bytes.erase(0, taken);
    return static_cast<long>(taken);
  }
};

struct Pair {
  Wire to_server, to_client;
  Tls client, server;
  explicit Pair(Digest clients = key_of(1), Digest servers = key_of(1), std::uint64_t records = Tls::kRecordsPerKey)
      : client(Tls::End::connecting, clients, to_client, records), server(Tls::End::accepting, servers, to_server) {}
  void carry() {
    to_server.bytes += client.output().take();
    to_client.bytes += server.output().take();
  }
  // Both ends' results, once neither gets further.
  std::pair<long, long> shake() {
    std::pair<long, long> results{-EAGAIN, -EAGAIN};
    for (int round = 0; round < 4; ++round) {
      results.first = client.shake_hands();
      carry();
      results.second = server.shake_hands();
      carry();
    }
    return results;
  }
  void send(std::string_view text) {
    REQUIRE(client.write(as_bytes(text)) == 0);
    carry();
  }
  // Everything that is there, and how it ends.
  std::pair<std::string, long> receive() {
    std::string all;
    std::vector<std::byte> some(5000);
    for (;;) {
      const long got = server.read(some);
      if (got <= 0) return {all, got};
      all.append(reinterpret_cast<const char*>(some.data()), static_cast<std::size_t>(got));
    }
  }
};

std::pair<long, long> both(long result) { return {result, result}; }

std::string text_of(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += kPattern;
  text.resize(bytes);
  return text;
}

}  // namespace

TEST_CASE("TLS carries bytes that nobody sees, both ways") {
  Pair pair;
  const auto shaken = pair.shake();
  INFO(pair.client.reason() << ", " << pair.server.reason());
  REQUIRE(shaken == both(0));
  CHECK(pair.to_client.bytes.empty());  // no tickets: nothing comes that is not data
  for (const std::size_t bytes : {1, 64, 16384, 16385, 300000}) {
    const std::string text = text_of(bytes);
    REQUIRE(pair.client.write(as_bytes(text)) == 0);
    pair.carry();
    CHECK(pair.to_server.bytes.size() > bytes);
    CHECK(pair.to_server.bytes.find(kPattern.substr(0, 12)) == std::string::npos);
    CHECK(pair.receive() == std::pair(text, long{-EAGAIN}));
  }
  REQUIRE(pair.server.write(as_bytes(kPattern)) == 0);
  pair.carry();
  std::array<std::byte, 100> back;
  REQUIRE(pair.client.read(back) == static_cast<long>(kPattern.size()));
  CHECK(std::memcmp(back.data(), kPattern.data(), kPattern.size()) == 0);
}

TEST_CASE("TLS ends with its goodbye, and without one it was cut") {
  Pair polite;
  REQUIRE(polite.shake() == both(0));
  polite.send("last words");
  polite.client.say_goodbye();
  polite.carry();
  polite.to_server.ended = true;
  CHECK(polite.receive() == std::pair(std::string("last words"), long{0}));

  for (const std::size_t missing : {0, 1, 17, 30}) {
    Pair cut;
    REQUIRE(cut.shake() == both(0));
    cut.send("last words");
    cut.to_server.bytes.resize(cut.to_server.bytes.size() - missing);
    cut.to_server.ended = true;
    CHECK(cut.receive() == std::pair(std::string(missing == 0 ? "last words" : ""), long{-ECONNRESET}));
    CHECK(cut.receive().second == -ECONNRESET);
  }
}

TEST_CASE("TLS with another key, without one, or of another version comes to nothing") {
  Pair wrong(key_of(1), key_of(2));
  const auto results = wrong.shake();
  CHECK(results == both(-EBADMSG));
  CHECK_FALSE(wrong.server.reason().empty());
  CHECK(wrong.client.write(as_bytes("secret")) == -EBADMSG);
  CHECK(wrong.client.output().empty());

  // A client of its own, with no key, and one of TLS 1.2, which could renegotiate.
  for (const int version : {TLS1_3_VERSION, TLS1_2_VERSION}) {
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(context, version);
    SSL* stranger = SSL_new(context);
    BIO* out = BIO_new(BIO_s_mem());
    SSL_set_bio(stranger, BIO_new(BIO_s_mem()), out);
    CHECK(SSL_connect(stranger) < 0);
    char* hello = nullptr;
    const long bytes = BIO_get_mem_data(out, &hello);
    Wire wire;
    wire.bytes.assign(hello, static_cast<std::size_t>(bytes));
    Tls server(Tls::End::accepting, key_of(1), wire);
    CHECK(server.shake_hands() == -EBADMSG);
    CHECK_FALSE(server.reason().empty());
    SSL_free(stranger);
    SSL_CTX_free(context);
  }
}

TEST_CASE("whatever byte of TLS is changed, none of that record is delivered") {
  const std::string text = text_of(100);
  for (std::size_t at = 0;; ++at) {
    Pair pair;
    if (at % 8 != 0) continue;
    REQUIRE(pair.shake() == both(0));
    pair.send(text);
    const std::size_t record = pair.to_server.bytes.size();
    if (at >= record) break;
    pair.send("and more");
    pair.to_server.bytes[at] = static_cast<char>(pair.to_server.bytes[at] ^ 1);
    pair.to_server.ended = true;
    const auto [received, end] = pair.receive();
    CAPTURE(at);
    CHECK(received.empty());
    CHECK(end < 0);
    CHECK(end != -EAGAIN);
  }
  Pair repeated;
  REQUIRE(repeated.shake() == both(0));
  repeated.send(text);
  repeated.to_server.bytes += repeated.to_server.bytes;
  CHECK(repeated.receive() == std::pair(text, long{-EBADMSG}));
  repeated.carry();
  std::array<std::byte, 8> none;
  CHECK(repeated.client.read(none) == -EBADMSG);  // the other end is told
}

TEST_CASE("TLS changes its key before too much was sealed with one") {
  Pair often(key_of(1), key_of(1), 3), never;
  REQUIRE(often.shake() == both(0));
  REQUIRE(never.shake() == both(0));
  std::size_t of_often = 0, of_never = 0;
  for (int i = 0; i < 10; ++i) {
    for (auto [pair, bytes] : {std::pair(&often, &of_often), {&never, &of_never}}) {
      REQUIRE(pair->client.write(as_bytes(kPattern)) == 0);
      pair->carry();
      *bytes += pair->to_server.bytes.size();
      CHECK(pair->receive() == std::pair(std::string(kPattern), long{-EAGAIN}));
    }
  }
  CHECK(of_often > of_never);
  CHECK(often.server.output().empty());  // it is not asked for one of its own
}

namespace {

struct Sockets {
  Fd client, server;
  Sockets() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    client.reset(ends[0]);
    server.reset(ends[1]);
  }
};

}  // namespace

TEST_CASE("a secure stream over a socket that takes little at once loses nothing") {
  const Sockets sockets;
  const auto encryption = make_encryption(Secret::from_hex(std::string(64, 'a')), "test");
  auto client = encryption->over(sockets.client.get(), Encryption::End::connecting, as_bytes("hello"));
  auto server = encryption->over(sockets.server.get(), Encryption::End::accepting, as_bytes("hello"));
  CHECK(client->shake_hands() == -EAGAIN);
  CHECK(server->shake_hands() == -EAGAIN);
  CHECK(client->shake_hands() == 0);
  std::string text = text_of(3 << 20), received;
  std::size_t sent = static_cast<std::size_t>(client->send(as_bytes("first")));  // right behind the handshake
  REQUIRE(sent == 5);
  CHECK(server->shake_hands() == 0);
  std::array<std::byte, 5> first;
  char peeked = 0;
  CHECK(::recv(sockets.server.get(), &peeked, 1, MSG_PEEK) == 1);  // has not been read with the handshake
  CHECK(server->recv(first) == 5);
  std::vector<std::byte> some(100000);
  sent = 0;
  bool was_full = false;
  while (received.size() < text.size()) {
    while (sent < text.size()) {
      const long taken = client->send(as_bytes(std::string_view(text).substr(sent)));
      was_full = was_full || taken == -EAGAIN;
      if (taken == -EAGAIN) break;
      REQUIRE(taken > 0);
      sent += static_cast<std::size_t>(taken);
    }
    long got = 0;
    while ((got = server->recv(some)) > 0)
      received.append(reinterpret_cast<const char*>(some.data()), static_cast<std::size_t>(got));
    REQUIRE(got == -EAGAIN);
    const long flushed = client->flush();
    REQUIRE((flushed == 0 || flushed == -EAGAIN));
  }
  CHECK(was_full);
  CHECK(received == text);
  client.reset();
  CHECK(server->recv(some) == 0);
}

TEST_CASE("keys of a secure stream come from secret, context and transcript") {
  const auto meets = [](const std::string& secret, const std::string& context, const std::string& transcript) {
    const Sockets sockets;
    auto client = make_encryption(Secret::from_hex(std::string(64, 'a')), "test")
                      ->over(sockets.client.get(), Encryption::End::connecting, as_bytes("hello"));
    auto server = make_encryption(Secret::from_hex(secret), context)
                      ->over(sockets.server.get(), Encryption::End::accepting, as_bytes(transcript));
    CHECK(client->shake_hands() == -EAGAIN);
    const long served = server->shake_hands();
    return std::pair(served, client->shake_hands());
  };
  CHECK(meets(std::string(64, 'a'), "test", "hello") == std::pair(long{-EAGAIN}, long{0}));
  CHECK(meets(std::string(64, 'b'), "test", "hello") == both(-EBADMSG));
  CHECK(meets(std::string(64, 'a'), "text", "hello") == both(-EBADMSG));
  CHECK(meets(std::string(64, 'a'), "test", "hallo") == both(-EBADMSG));
}
