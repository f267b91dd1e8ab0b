// SPDX-License-Identifier: Apache-2.0
// What two ranks tell each other about a message. It travels in the place of a step's signature.
#pragma once
#include <bit>
#include <cstdint>

#include <rondo/error.hpp>

#include "comm/call/signature.hpp"

namespace rondo::comm {

struct Envelope {
  enum class Kind : std::uint8_t {
    whole,      // sender: a message, whose bytes are this step's
    announced,  // sender: a message that is too long for that; its bytes stay where they are
    clear,      // receiver of an announced one: send its bytes
    data,       // sender: the next of them
    taken,      // receiver: it has read them where they were
    credit,     // receiver: of those that were whole it has handed on so many bytes (id) since it last said so
  };
  std::uint64_t sequence = 0;  // of the sender's messages with this peer and tag, from 1
  std::uint64_t count = 0;     // elements
  Collective collective = Collective::send;
  DataType dtype{};
  Kind kind{};
  std::uint8_t unused = 0;
  std::int32_t tag = 0;
  std::uint64_t id = 0;       // the sender's, of an announced message
  std::uint64_t address = 0;  // where its bytes are, in the sender

  bool is_message() const { return kind == Kind::whole || kind == Kind::announced; }
  std::uint64_t bytes() const { return count * size_of(dtype); }
  // What both ends must agree on.
  Signature signature() const {
    return {.sequence = sequence, .count = count, .collective = Collective::send, .dtype = dtype, .root = tag};
  }
};
static_assert(sizeof(Envelope) == sizeof(Signature));

inline Signature packed(const Envelope& envelope) { return std::bit_cast<Signature>(envelope); }
inline Envelope unpacked(const Signature& signature, int peer) {
  const auto envelope = std::bit_cast<Envelope>(signature);
  if (envelope.collective != Collective::send || envelope.kind > Envelope::Kind::credit) {
    throw Error(ErrorCode::corrupt_message, "what came over a link of messages is none", peer);
  }
  return envelope;
}

}  // namespace rondo::comm
