// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mesh.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <rondo/error.hpp>
#include <set>

#include "comm/transport/mesh_meeting.hpp"

namespace rondo {
namespace {

void check(const MeshOptions& options, std::size_t advertisements, std::span<const MeshWish> peers) {
  const auto world = static_cast<std::size_t>(options.world_size);
  if (advertisements != world) {
    throw Error(ErrorCode::corrupt_message,
                fmt::format("rank {} got {} advertisements for {} ranks", options.rank, advertisements, world));
  }
  std::set<int> seen;
  for (const auto& [peer, data, messages, pulses] : peers) {
    if (peer < 0 || peer >= options.world_size || peer == options.rank || !seen.insert(peer).second) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank {} cannot meet rank {} in a world of {}", options.rank, peer, world));
    }
  }
}

}  // namespace

Mesh::Mesh(MeshOptions options)
    : options_(std::move(options)), listeners_(listen_on(options_.addresses, options_.first_port, options_.last_port)) {
  fill_random(id_);
}

std::vector<std::byte> Mesh::advertisement() const { return encode({id_, listeners_.addresses}); }

std::vector<MeshPeer> Mesh::connect(std::span<const Store::Bytes> advertisements, std::span<const MeshWish> peers,
                                    Store::Deadline deadline, const Lookout& lookout) {
  check(options_, advertisements.size(), peers);
  std::vector<MeshParty> parties;
  for (const auto& [peer, data, messages, pulses] : peers) {
    parties.push_back(
        {peer, data, messages, pulses, decode_advertisement(advertisements[static_cast<std::size_t>(peer)], peer)});
  }
  const Membership membership{options_.name, options_.generation, static_cast<std::uint32_t>(options_.world_size),
                              options_.authenticator, options_.encryption};
  MeshMeeting meeting(membership, options_.rank, id_, std::move(parties), options_.handshake_limit);
  return meeting.run(std::move(listeners_), deadline, lookout);
}

}  // namespace rondo
