// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/node_meeting.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "comm/base/machine.hpp"
#include "comm/base/system_error.hpp"
#include "comm/transport/addresses.hpp"
#include "comm/transport/node_gathering.hpp"
#include "comm/transport/sockets.hpp"
#include "comm/transport/wire.hpp"

namespace rondo {
namespace {

constexpr std::string_view kNodeMagic = "rondo/n1";

MeetingId decode(std::span<const Store::Bytes> advertisements, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  if (rank >= 0 && index < advertisements.size()) {
    WireReader reader(advertisements[index]);
    const bool good = reader.expect(kNodeMagic);
    const auto id = reader.raw<sizeof(MeetingId)>();
    if (good && reader.at_end()) return id;
  }
  throw Error(ErrorCode::corrupt_message,
              fmt::format("rank {} advertised no socket of this node; do all ranks run the same version?", rank), rank);
}

}  // namespace

std::string node_identity(const std::string& explicit_name) {
  return explicit_name.empty() ? "found:" + node_identity() : "name:" + explicit_name;
}

NodeMeeting::NodeMeeting(int rank, std::string name, std::shared_ptr<const Authenticator> authenticator)
    : rank_(rank), membership_{std::move(name), 0, 0, std::move(authenticator)} {
  fill_random(id_);
  listener_ = make_socket(AF_UNIX);
  const UnixAddress address = abstract_address(id_);
  if (::bind(listener_.get(), address.get(), address.bytes) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0) {
    throw_errno("cannot listen on an abstract Unix socket");
  }
}

std::vector<std::byte> NodeMeeting::advertisement() const { return WireWriter().raw(kNodeMagic).raw(id_).bytes(); }

NodeDescriptors NodeMeeting::meet(std::span<const int> ranks, std::span<const Store::Bytes> advertisements,
                                  std::size_t segment_bytes, Store::Deadline deadline, const Lookout& lookout) {
  if (!std::ranges::is_sorted(ranks, std::ranges::less_equal()) || std::ranges::find(ranks, rank_) == ranks.end()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} cannot meet ranks of a node that is not its own", rank_));
  }
  membership_.world_size = static_cast<std::uint32_t>(ranks.size());
  std::vector<MeetingId> ids;
  for (const int rank : ranks) ids.push_back(decode(advertisements, rank));
  if (rank_ == ranks.front())
    return NodeLeader(membership_, ranks, ids).run(std::move(listener_), segment_bytes, deadline, lookout);
  listener_.reset();
  const Encounter encounter{static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(ranks.front()),
                            MeetingChannel::node, id_, ids.front()};
  return NodeFollower(membership_, encounter, ranks.size()).run(deadline, lookout);
}

}  // namespace rondo
