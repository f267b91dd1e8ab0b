// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/card.hpp"

#include "comm/base/bytes.hpp"

namespace rondo::comm {

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
  return card;
}

}  // namespace rondo::comm
