// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/card.hpp"

#include "comm/base/bytes.hpp"
#include "comm/setup/ranges.hpp"

namespace rondo::comm {
namespace {

// What everybody takes over from rank 0's, or looks up by.
bool makes_sense(const Card& card) {
  return card.device <= Device::Kind::sim && card.determinism <= Determinism::fast &&
         kSliceBytes.holds(card.slice_bytes) && card.slice_bytes % kSliceUnit == 0 && kFifoSlots.holds(card.slots) &&
         kSegmentBytes.holds(card.segment_bytes) && kPatienceMs.holds(card.link_patience_ms);
}

}  // namespace

Store::Bytes Card::encode() const {
  ByteWriter out;
  for (const std::string* text : {&node, &host, &pid_namespace, &transport, &algorithm, &protocol, &tuning})
    out.text(*text);
  out.number(device).number(pid).number(quota).number(determinism);
  for (const std::uint64_t number : {slice_bytes, slots, segment_bytes, probe, probe_word}) out.number(number);
  out.number(link_patience_ms).number(encrypts);
  out.bytes(cores).bytes(mesh).bytes(meeting);
  for (const Store::Bytes& bytes : advertised) out.bytes(bytes);
  return out.take();
}

Card Card::decode(const Store::Bytes& bytes, std::size_t transports) {
  ByteReader in(bytes);
  Card card;
  for (std::string* text :
       {&card.node, &card.host, &card.pid_namespace, &card.transport, &card.algorithm, &card.protocol, &card.tuning}) {
    *text = in.text();
  }
  card.device = in.number<Device::Kind>();
  card.pid = in.number<std::int32_t>();
  card.quota = in.number<std::int32_t>();
  card.determinism = in.number<Determinism>();
  for (std::uint64_t* number : {&card.slice_bytes, &card.slots, &card.segment_bytes, &card.probe, &card.probe_word})
    *number = in.number<std::uint64_t>();
  card.link_patience_ms = in.number<std::uint32_t>();
  card.encrypts = in.number<bool>();
  card.cores = in.bytes();
  card.mesh = in.bytes();
  card.meeting = in.bytes();
  while (card.advertised.size() < transports) card.advertised.push_back(in.bytes());
  if (card.encode() != bytes || !makes_sense(card)) {
    throw Error(ErrorCode::corrupt_message,
                "a rank says things of itself that no rank of this version would; do all ranks run the same version?");
  }
  return card;
}

}  // namespace rondo::comm
