// SPDX-License-Identifier: Apache-2.0
// The mutual challenge with which every connection between peers begins; frames in, frames out, no I/O.
//   connecting end -> HELLO: who meets whom, a nonce
//   accepting end  -> CHALLENGE: its nonce, its MAC over the transcript
//   connecting end -> PROOF: its MAC over the same transcript, under another label (so nothing can be reflected)
//   accepting end  -> its first word (WELCOME or descriptors): only now is the connection counted on both ends
// With encryption both say so in their MACs, and TLS begins behind the WELCOME.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/setup/authenticator.hpp"
#include "comm/setup/encryption.hpp"

namespace rondo {

using MeetingId = std::array<std::byte, 16>;  // random; tells one run's listener from another's
using Nonce = std::array<std::byte, 32>;

void fill_random(std::span<std::byte> out);
std::string hex(const MeetingId& id);

// What both ends must have in common.
struct Membership {
  std::string name;
  std::uint32_t generation = 0;
  std::uint32_t world_size = 1;
  std::shared_ptr<const Authenticator> authenticator;  // null: MACs are zero and not looked at
  std::shared_ptr<const Encryption> encryption{};      // null: what follows the handshake is plain
};

enum class MeetingChannel : std::uint8_t { data, control, node, messages, pulse, other_pulse };

struct Encounter {
  std::uint32_t from = 0;  // the rank that connected
  std::uint32_t to = 0;    // the rank that accepted
  MeetingChannel channel = MeetingChannel::data;
  MeetingId from_id{};
  MeetingId to_id{};
};

inline constexpr std::size_t kHelloBytes = 97;
inline constexpr std::size_t kChallengeBytes = 72;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kMagicBytes = 8;  // both frames begin with it
using Hello = std::array<std::byte, kHelloBytes>;
using Challenge = std::array<std::byte, kChallengeBytes>;

bool begins_hello(std::span<const std::byte> magic);

// The connecting end.
class Greeting {
 public:
  Greeting(const Membership& membership, const Encounter& encounter);
  const Hello& hello() const { return hello_; }
  // The proof to send, or nothing when the other end did not prove itself.
  std::optional<Authenticator::Mac> answer(const Challenge& challenge) const;
  // After that: all that both ends have said, the same as the other end's.
  std::vector<std::byte> transcript(const Challenge& challenge) const;

 private:
  const Membership& membership_;
  Hello hello_{};
};

// The accepting end. Outlives neither the membership nor the exchange.
class Examination {
 public:
  explicit Examination(const Membership& membership) : membership_(membership) {}
  // Who connects, or nothing when the frame is not from this membership.
  std::optional<Encounter> read(const Hello& hello);
  Challenge challenge();
  bool accept(const Authenticator::Mac& proof) const;
  std::vector<std::byte> transcript() const;  // after challenge()

 private:
  const Membership& membership_;
  Hello hello_{};
  Nonce nonce_{};
};

}  // namespace rondo
