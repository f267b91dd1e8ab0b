// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/transport.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <rondo/error.hpp>

#include "comm/transport/secure_link.hpp"
#include "comm/transport/shm_link.hpp"
#include "comm/transport/tcp_link.hpp"

namespace rondo::comm {
namespace {

class ShmConnector final : public Connector {
  Links connect(Joint joint) override {
    return make_shm_links(joint.segment, std::move(joint.bells), joint.self_index, joint.peer_index);
  }
};
class TcpConnector final : public Connector {
  Links connect(Joint joint) override {
    if (joint.secured.stream)
      return make_secure_links(std::move(joint.secured), joint.peer.rank, joint.lane, joint.shape);
    return make_tcp_links(std::move(joint.socket), joint.peer.rank, joint.shape);
  }
};

template <class C>
std::unique_ptr<Connector> make(const Bootstrap&) {
  return std::make_unique<C>();
}

bool share_memory(const Party& one, const Party& other) { return one.segment >= 0 && one.segment == other.segment; }
bool always(const Party&, const Party&) { return true; }

}  // namespace

const Transports& transports() {
  static const Transports table = {
      {"shm", Transport::Needs::memory, share_memory, make<ShmConnector>},
      {"tcp", Transport::Needs::socket, always, make<TcpConnector>},
  };
  return table;
}

void check_transport_name(std::string_view name, const Transports& known) {
  const auto is_it = [&](const Transport& row) { return row.name == name; };
  if (name.empty() || std::any_of(known.begin(), known.end(), is_it)) return;
  std::vector<std::string_view> names;
  for (const Transport& row : known) names.push_back(row.name);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("RONDO_TRANSPORT={} is not a transport: {}, or unset", name, fmt::join(names, ", ")));
}

}  // namespace rondo::comm
