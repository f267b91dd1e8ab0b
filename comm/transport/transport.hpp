// SPDX-License-Identifier: Apache-2.0
// Transports as rows. Ranks that meet tell each other in their cards what each transport needs to know; of every pair
// the first row that can connect it makes the links. The team that gets the links knows nothing of transports.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/fd.hpp"
#include "comm/setup/encryption.hpp"
#include "comm/team/doorbell.hpp"
#include "comm/team/link.hpp"

namespace rondo {
struct Bootstrap;
}

namespace rondo::comm {

// What everybody knows of a rank once cards are exchanged and the ranks of a node have tried to share memory.
struct Party {
  int rank = -1;
  std::string_view node{}, host{};
  int pid = 0;
  int segment = -1;                         // ranks of the same one share memory; -1: it shares with nobody
  std::span<const std::byte> advertised{};  // by this transport
};

// A socket and what makes it unreadable for others, which alone may use it.
struct SecuredSocket {
  Fd socket{};
  std::unique_ptr<SecureStream> stream{};
};

// What links are made of.
struct Joint {
  Party self, peer;
  Lane lane = Lane::collectives;
  FifoShape shape;
  Segment segment{};  // Needs::memory: it has both ranks, at these indices; of that lane
  Doorbells bells{};  // likewise
  int self_index = -1, peer_index = -1;
  Fd socket{};              // Needs::socket: of that lane, non-blocking, and both ends are proven to be of the same job
  SecuredSocket secured{};  // with encryption instead of that one, so that a row that knows of none sends nothing
};

// One rank's end of a transport, from before it knows of any peer until its links are made. Links keep what they need.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual std::vector<std::byte> advertise() { return {}; }  // once: what its card says
  // Both ranks of a pair, each once for each lane, in no order of pairs and not at the same time: it may not wait for
  // the peer.
  virtual Links connect(Joint joint) = 0;
};

struct Transport {
  // What the ranks of a pair make for it beforehand. Memory is shared by all ranks of a node or by none.
  enum class Needs : std::uint8_t { nothing, memory, socket };

  std::string_view name;  // in RONDO_TRANSPORT and in the log
  Needs needs;
  // Of the two ranks alone, and the same the other way round: every rank comes to the same choice for every pair.
  bool (*can_connect)(const Party& one, const Party& other);
  std::unique_ptr<Connector> (*open)(const Bootstrap& bootstrap);
};
using Transports = std::vector<Transport>;  // the first that can connect a pair does

const Transports& transports();  // of this library
// invalid_argument: not empty, and no row's name.
void check_transport_name(std::string_view name, const Transports& known);

}  // namespace rondo::comm
