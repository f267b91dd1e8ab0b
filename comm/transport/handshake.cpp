// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/handshake.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "comm/base/system_error.hpp"
#include "comm/transport/wire.hpp"

namespace rondo {
namespace {

constexpr std::string_view kHelloMagic = "rondo/h1";
constexpr std::string_view kChallengeMagic = "rondo/c1";
constexpr std::string_view kAcceptLabel = "rondo peer 1: accepting end";
constexpr std::string_view kConnectLabel = "rondo peer 1: connecting end";
constexpr std::string_view kKeysLabel = "rondo peer 1: keys";
static_assert(kHelloMagic.size() == kMagicBytes && kChallengeMagic.size() == kMagicBytes);

template <std::size_t N>
std::array<std::byte, N> fixed(const WireWriter& writer) {
  std::array<std::byte, N> frame{};
  if (writer.bytes().size() != N) throw Error(ErrorCode::system, "a handshake frame has not its size");
  std::ranges::copy(writer.bytes(), frame.begin());
  return frame;
}

// FNV-1a: turns away honest mistakes before anything is signed; the name itself is in the transcript.
std::uint64_t digest(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

// Who encrypts does not meet whom that would not.
std::vector<std::byte> transcript_of(const Membership& membership, std::string_view label, const Hello& hello,
                                     const Nonce& nonce) {
  WireWriter transcript;
  transcript.raw(label).raw(membership.encryption ? ", encrypted" : "");
  transcript.number(static_cast<std::uint32_t>(membership.name.size())).raw(membership.name);
  transcript.raw(hello).raw(nonce);
  return transcript.bytes();
}

Authenticator::Mac sign(const Membership& membership, std::string_view label, const Hello& hello, const Nonce& nonce) {
  if (!membership.authenticator) return {};
  return membership.authenticator->sign(transcript_of(membership, label, hello, nonce));
}

bool verify(const Membership& membership, std::string_view label, const Hello& hello, const Nonce& nonce,
            const Authenticator::Mac& mac) {
  return !membership.authenticator ||
         membership.authenticator->verify(transcript_of(membership, label, hello, nonce), mac);
}

}  // namespace

void fill_random(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno != EINTR) throw_errno("cannot draw random bytes");
    if (got > 0) out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::string hex(const MeetingId& id) {
  std::string text;
  for (const std::byte b : id) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

bool begins_hello(std::span<const std::byte> magic) { return WireReader(magic).expect(kHelloMagic); }

Greeting::Greeting(const Membership& membership, const Encounter& encounter) : membership_(membership) {
  Nonce nonce;
  fill_random(nonce);
  WireWriter hello;
  hello.raw(kHelloMagic).number(membership.generation).number(membership.world_size).number(digest(membership.name));
  hello.number(encounter.from).number(encounter.to).number(static_cast<std::uint8_t>(encounter.channel));
  hello.raw(encounter.from_id).raw(encounter.to_id).raw(nonce);
  hello_ = fixed<kHelloBytes>(hello);
}

std::optional<Authenticator::Mac> Greeting::answer(const Challenge& challenge) const {
  WireReader reader(challenge);
  if (!reader.expect(kChallengeMagic)) return std::nullopt;
  const auto nonce = reader.raw<sizeof(Nonce)>();
  const auto mac = reader.raw<sizeof(Authenticator::Mac)>();
  if (!verify(membership_, kAcceptLabel, hello_, nonce, mac)) return std::nullopt;
  return sign(membership_, kConnectLabel, hello_, nonce);
}

std::vector<std::byte> Greeting::transcript(const Challenge& challenge) const {
  WireReader reader(challenge);
  reader.expect(kChallengeMagic);
  return transcript_of(membership_, kKeysLabel, hello_, reader.raw<sizeof(Nonce)>());
}

std::optional<Encounter> Examination::read(const Hello& hello) {
  hello_ = hello;
  WireReader reader(hello);
  reader.expect(kHelloMagic);
  const bool ours = reader.number<std::uint32_t>() == membership_.generation &&
                    reader.number<std::uint32_t>() == membership_.world_size &&
                    reader.number<std::uint64_t>() == digest(membership_.name);
  if (!ours) return std::nullopt;
  Encounter encounter;
  encounter.from = reader.number<std::uint32_t>();
  encounter.to = reader.number<std::uint32_t>();
  const auto channel = reader.number<std::uint8_t>();
  encounter.channel = static_cast<MeetingChannel>(channel);
  encounter.from_id = reader.raw<sizeof(MeetingId)>();
  encounter.to_id = reader.raw<sizeof(MeetingId)>();
  if (!reader.ok() || channel > static_cast<std::uint8_t>(MeetingChannel::other_pulse)) return std::nullopt;
  return encounter;
}

Challenge Examination::challenge() {
  fill_random(nonce_);
  WireWriter frame;
  frame.raw(kChallengeMagic).raw(nonce_).raw(sign(membership_, kAcceptLabel, hello_, nonce_));
  return fixed<kChallengeBytes>(frame);
}

bool Examination::accept(const Authenticator::Mac& proof) const {
  return verify(membership_, kConnectLabel, hello_, nonce_, proof);
}

std::vector<std::byte> Examination::transcript() const {
  return transcript_of(membership_, kKeysLabel, hello_, nonce_);
}

}  // namespace rondo
