// SPDX-License-Identifier: Apache-2.0
// What a rank tells all others about itself before they connect.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/communicator.hpp>
#include <rondo/store.hpp>

namespace rondo::comm {

struct Card {
  std::string node, host, pid_namespace, transport, algorithm, protocol, tuning;
  Device::Kind device{};
  std::int32_t pid = 0, quota = 1;  // quota: of the control group, in cores
  Determinism determinism{};
  std::uint64_t slice_bytes = 0, slots = 0, segment_bytes = 0;
  std::uint64_t probe = 0, probe_word = 0;  // the address of a CopyProbe, and what it holds
  std::uint32_t link_patience_ms = 0;
  bool encrypts = false;  // its connections over TCP
  Store::Bytes cores, mesh, meeting;
  std::vector<Store::Bytes> advertised{};  // by row of the transport table

  Store::Bytes encode() const;
  // `transports`: how many rows the table has, the same on all ranks. corrupt_message: it is no card.
  static Card decode(const Store::Bytes& bytes, std::size_t transports);
};

}  // namespace rondo::comm
