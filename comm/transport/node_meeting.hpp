// SPDX-License-Identifier: Apache-2.0
// The meeting of ranks on one node: they exchange descriptors over an abstract Unix socket of a random name, so
// nothing of it lies on a disk. Runs in the caller's thread.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/error.hpp>
#include <rondo/store.hpp>

#include "comm/base/fd.hpp"
#include "comm/setup/authenticator.hpp"
#include "comm/transport/descriptors.hpp"
#include "comm/transport/handshake.hpp"
#include "comm/transport/lookout.hpp"

namespace rondo {

// Ranks with equal identities try to share memory: the explicit name when there is one, else what the machine says.
std::string node_identity(const std::string& explicit_name);

struct NodePeer {
  int rank = -1;
  Fd socket;  // Unix stream, non-blocking; end of file tells of the process' death
};

inline constexpr std::size_t kDoorbellsPerRank = 2;  // for collectives, and for messages

struct NodeDescriptors {
  Fd segment;  // a sealed memfd
  // Non-blocking eventfds, one per local rank, in the order of the ranks, and then as many for their messages.
  std::vector<Fd> doorbells;
  std::vector<NodePeer> peers;  // leader: every follower, in order; follower: the leader
};

Fd make_doorbell();  // as NodeDescriptors has them

class NodeMeeting {
 public:
  // Listens. `name` is the communicator's, unique within the job, its generation included.
  NodeMeeting(int rank, std::string name, std::shared_ptr<const Authenticator> authenticator);

  std::vector<std::byte> advertisement() const;

  // `ranks`: this node's, ascending; the first is the leader and makes the segment and the doorbells. All of them
  // succeed or none does. Once per meeting: afterwards nobody listens.
  // timeout: names the missing ranks, culprit() is the first; peer_lost: a rank left in the middle, or its socket is
  // not to be found on this node; corrupt_message: an advertisement that is none.
  NodeDescriptors meet(std::span<const int> ranks, std::span<const Store::Bytes> advertisements,
                       std::size_t segment_bytes, Store::Deadline deadline, const Lookout& lookout = {});

 private:
  int rank_;
  Membership membership_;
  MeetingId id_{};  // also the name of the socket
  Fd listener_;
};

}  // namespace rondo
