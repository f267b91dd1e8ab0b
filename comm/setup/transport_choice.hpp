// SPDX-License-Identifier: Apache-2.0
// Which transport connects which pair of ranks. Every rank comes to the same choice for every pair.
#pragma once
#include <string>
#include <vector>

#include "comm/setup/card.hpp"
#include "comm/team/team.hpp"
#include "comm/transport/transport.hpp"

namespace rondo::comm {

// A view of what a rank that connects knows by then.
class TransportChoice {
 public:
  // `only`: the name of the one row that is allowed; empty: all are.
  TransportChoice(const Transports& known, const std::string& only, const std::vector<Card>& cards,
                  const std::vector<Placement>& placement)
      : known_(known), only_(only), cards_(cards), placement_(placement) {}

  bool wants_memory() const;                          // the ranks of a node try to share some
  Party party(int rank, const Transport& row) const;  // with what it advertised for that row of ours
  const Transport* find(int one, int other) const;    // null: none connects these two
  void check() const;                                 // unsupported: there is a pair that none connects
  std::string describe(bool two_levels) const;        // the names in use

 private:
  bool allows(const Transport& row) const { return only_.empty() || only_ == row.name; }
  [[noreturn]] void refuse(int one, int other) const;

  const Transports& known_;
  const std::string& only_;
  const std::vector<Card>& cards_;
  const std::vector<Placement>& placement_;
};

}  // namespace rondo::comm
