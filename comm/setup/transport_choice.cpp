// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/transport_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace rondo::comm {

bool TransportChoice::wants_memory() const {
  return std::any_of(known_.begin(), known_.end(),
                     [&](const Transport& row) { return row.needs == Transport::Needs::memory && allows(row); });
}

Party TransportChoice::party(int rank, const Transport& row) const {
  const Card& card = cards_[static_cast<std::size_t>(rank)];
  const Placement& where = placement_[static_cast<std::size_t>(rank)];
  return {.rank = rank,
          .node = card.node,
          .host = card.host,
          .pid = card.pid,
          .segment = where.shares_memory ? where.node : -1,
          .advertised = card.advertised[static_cast<std::size_t>(&row - known_.data())]};
}

const Transport* TransportChoice::find(int one, int other) const {
  for (const Transport& row : known_) {
    if (allows(row) && row.can_connect(party(one, row), party(other, row))) return &row;
  }
  return nullptr;
}

// Every rank looks at every pair, and so refuses what another has to refuse.
void TransportChoice::check() const {
  const int size = static_cast<int>(cards_.size());
  for (int one = 0; one < size; ++one) {
    for (int other = one + 1; other < size; ++other) {
      if (find(one, other) == nullptr) refuse(one, other);
    }
  }
}

void TransportChoice::refuse(int one, int other) const {
  const auto describe = [&](int rank) {
    const Placement& where = placement_[static_cast<std::size_t>(rank)];
    return fmt::format("{} (host {}, node {})", rank, where.host, where.node);
  };
  throw Error(ErrorCode::unsupported,
              only_.empty() ? fmt::format("no transport connects rank {} with rank {}", describe(one), describe(other))
                            : fmt::format("RONDO_TRANSPORT={}, but {} does not connect rank {} with rank {}", only_,
                                          only_, describe(one), describe(other)));
}

std::string TransportChoice::describe(bool two_levels) const {
  std::set<std::string_view> within, between, all;  // nodes
  const int size = static_cast<int>(cards_.size());
  for (int one = 0; one < size; ++one) {
    for (int other = one + 1; other < size; ++other) {
      const std::string_view name = find(one, other)->name;
      const auto node_of = [&](int rank) { return placement_[static_cast<std::size_t>(rank)].node; };
      (node_of(one) == node_of(other) ? within : between).insert(name);
      all.insert(name);
    }
  }
  if (two_levels)
    return fmt::format("two levels, {} within a node and {} between", fmt::join(within, ", "),
                       fmt::join(between, ", "));
  return all.empty() ? "nobody to connect" : fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace rondo::comm
