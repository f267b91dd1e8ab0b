// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/node_frame.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.hpp>

#include "comm/transport/wire.hpp"

namespace rondo {

std::array<std::byte, NodeFrame::kBytes> NodeFrame::encode() const {
  WireWriter writer;
  writer.number(static_cast<std::uint8_t>(kind)).number(count);
  for (std::size_t i = 0; i < kMaxRanks; ++i) {
    writer.number(static_cast<std::uint32_t>(i < ranks.size() ? ranks[i] : -1));
  }
  std::array<std::byte, kBytes> frame{};
  std::ranges::copy(writer.bytes(), frame.begin());
  return frame;
}

NodeFrame NodeFrame::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  NodeFrame frame;
  const auto kind = reader.number<std::uint8_t>();
  frame.kind = static_cast<Kind>(kind);
  frame.count = reader.number<std::uint32_t>();
  for (std::size_t i = 0; i < kMaxRanks; ++i) {
    const int rank = static_cast<int>(reader.number<std::uint32_t>());
    if (i < frame.count) frame.ranks.push_back(rank);
  }
  if (!reader.at_end() || kind > static_cast<std::uint8_t>(Kind::lost)) {
    throw Error(ErrorCode::corrupt_message, "the leader of this node sent a frame that is none");
  }
  return frame;
}

void NodeFrame::raise(int rank, const std::string& name) const {
  const int culprit = ranks.empty() ? -1 : ranks.front();
  std::string named;
  for (const int missing : ranks) named += (named.empty() ? "" : ", ") + std::to_string(missing);
  const std::string more = count > ranks.size() ? fmt::format(" and {} more", count - ranks.size()) : "";
  if (kind == Kind::lost) {
    throw Error(ErrorCode::peer_lost,
                fmt::format("rank {} of '{}': rank {} left while the ranks of this node met; see what it says itself",
                            rank, name, culprit),
                culprit);
  }
  throw Error(ErrorCode::timeout,
              fmt::format("rank {} of '{}' waited in vain for rank(s) {}{} of its node; do they run, as the same user, "
                          "and with the same secret?",
                          rank, name, named, more),
              culprit);
}

}  // namespace rondo
