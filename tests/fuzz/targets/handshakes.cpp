// SPDX-License-Identifier: Apache-2.0
// With a secret: whoever does not know it gets in nowhere, whatever it says.
#include <algorithm>

#include "comm/transport/handshake.hpp"
#include "rendezvous/handshake.hpp"
#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {
namespace {

constexpr const char* kJob = "job";
const rendezvous::Secret& secret() {
  static const auto one = rendezvous::Secret::from_hex(std::string(2 * rendezvous::Secret::kBytes, '7'));
  return one;
}

// A stranger that knows the protocol, and of the secret nothing.
void knock(std::string_view hello, std::string_view proof) {
  rendezvous::JobKey key(secret());
  rendezvous::ServerHandshake server;
  if (!accepts([&] { server.answer(hello, kJob, key); })) return;
  expect(!accepts([&] { server.finish(proof, key); }), "a stranger was let in");
}

void pretend_to_serve(std::string_view hello) {
  rendezvous::JobKey key(secret());
  rendezvous::ClientHandshake client;
  client.hello(kJob, key);
  expect(!accepts([&] { client.finish(hello, key); }), "a client believes a server without the secret");
}

// Frames are the same however the stream is cut, and a signed one is opened once, unchanged.
void cut(std::size_t piece, Bytes stream) {
  const auto frames_of = [&](std::size_t size) {
    std::vector<std::string> frames;
    rendezvous::FrameReader reader(rendezvous::kMaxHelloBytes);
    accepts([&] {
      for (std::size_t from = 0; from < stream.size(); from += size) {
        reader.feed(stream.subspan(from, std::min(size, stream.size() - from)));
        while (const auto frame = reader.next()) frames.emplace_back(*frame);
      }
    });
    return frames;
  };
  expect(frames_of(piece) == frames_of(std::max<std::size_t>(1, stream.size())), "pieces change the frames");
}

void forge(std::string_view frame) {
  rendezvous::Seal sending{rendezvous::KeptKey()}, receiving{rendezvous::KeptKey()}, other{rendezvous::KeptKey()};
  const rendezvous::Body body{std::string(frame)};
  std::string whole = sending.head(7, body) + body.bytes();
  const auto opened = receiving.open(std::string_view(whole).substr(4));
  expect(opened.request == 7 && opened.body == frame, "a sealed frame is opened as another");
  expect(!accepts([&] { receiving.open(std::string_view(whole).substr(4)); }), "a frame is opened twice");
  expect(!accepts([&] { other.open(frame); }), "a frame that nobody signed is opened");
}

}  // namespace

void run_rendezvous_handshake(Bytes input) {
  Script script(input);
  const unsigned what = script.byte();
  if (what % 4 == 0) {
    const Bytes hello = script.block();
    return knock(as_text(hello), as_text(script.rest()));
  }
  if (what % 4 == 1) return pretend_to_serve(as_text(script.rest()));
  if (what % 4 == 2) return cut(1 + what / 4, script.rest());
  forge(as_text(script.rest()));
}

std::vector<std::string> rendezvous_handshake_seeds() {
  rendezvous::JobKey key(secret());
  rendezvous::ClientHandshake client;
  const std::string hello = client.hello(kJob, key).SerializeAsString();
  const auto answer = rendezvous::ServerHandshake().answer(hello, kJob, key);
  proto::ClientProof proof;
  proof.set_proof(std::string(32, 'p'));
  return {std::string{'\0', static_cast<char>(hello.size())} + hello + proof.SerializeAsString(),
          "\1" + rendezvous::ServerHandshake().answer(hello, kJob, key).SerializeAsString(),
          std::string("\x16") + rendezvous::plain_frame(hello) + rendezvous::plain_frame(hello), "\3body"};
}

namespace {

Membership of_peers() { return {"world", 3, 4, rendezvous::make_authenticator(secret(), "peers")}; }

template <class Frame>
bool read_frame(Script& script, Frame& frame) {
  const Bytes bytes = script.rest();
  if (bytes.size() < frame.size()) return false;
  std::ranges::copy(bytes.first(frame.size()), frame.begin());
  return true;
}

}  // namespace

void run_peer_handshake(Bytes input) {
  Script script(input);
  static const Membership kMembership = of_peers();
  if (script.byte() % 2 == 0) {
    Examination examination(kMembership);
    std::array<std::byte, kHelloBytes + kProofBytes> frames{};
    if (!read_frame(script, frames)) return;
    Hello hello{};
    Authenticator::Mac proof{};
    std::ranges::copy(std::span(frames).first(kHelloBytes), hello.begin());
    std::ranges::copy(std::span(frames).subspan(kHelloBytes), proof.begin());
    const bool begins = begins_hello(std::span(hello).first(kMagicBytes));
    if (const auto encounter = examination.read(hello)) {
      expect(begins, "a hello without its beginning is read");
      expect(encounter->channel <= MeetingChannel::other_pulse, "a channel that is none");
      examination.challenge();
      expect(!examination.accept(proof), "a stranger was let in");
    }
    return;
  }
  const Greeting greeting(kMembership, {.from = 1, .to = 0});
  Challenge challenge{};
  if (!read_frame(script, challenge)) return;
  expect(!greeting.answer(challenge), "a peer believes a stranger's challenge");
}

std::vector<std::string> peer_handshake_seeds() {
  const Membership membership = of_peers();
  const Greeting greeting(membership, {.from = 1, .to = 0, .channel = MeetingChannel::control});
  Examination examination(membership);
  examination.read(greeting.hello());
  const Challenge challenge = examination.challenge();
  return {std::string(1, '\0') + text_of(greeting.hello()) + std::string(kProofBytes, 'p'), "\1" + text_of(challenge)};
}

}  // namespace rondo::fuzz
