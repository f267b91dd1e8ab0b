// SPDX-License-Identifier: Apache-2.0
// Which row of a table connects which pair, from what the ranks' cards say.
#include "comm/setup/transport_choice.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/queue_transport.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::comm;

namespace {

// Ranks on nodes 0, 0, 1, 2, 2; those of node 2 could not share memory.
struct Five {
  explicit Five(const Transports& known, std::string only = "") : known_(known), only_(std::move(only)) {
    for (const int node : {0, 0, 1, 2, 2}) {
      placement_.push_back({.node = node, .shares_memory = node != 2, .host = "here"});
      Card& card = cards_.emplace_back();
      card.node = "n" + std::to_string(node);
      card.host = "here";
      card.advertised.resize(known.size());
    }
  }
  std::string name(int one, int other) const {
    const Transport* row = choice_.find(one, other);
    CHECK(choice_.find(other, one) == row);
    return row == nullptr ? "none" : std::string(row->name);
  }
  Card& card(int rank) { return cards_[static_cast<std::size_t>(rank)]; }
  const TransportChoice& choice() const { return choice_; }

 private:
  const Transports& known_;
  std::string only_;
  std::vector<Card> cards_;
  std::vector<Placement> placement_;
  TransportChoice choice_{known_, only_, cards_, placement_};
};

}  // namespace

TEST_CASE("of the library's transports shm connects who shares memory, and tcp everybody else") {
  const Five ranks(transports());
  CHECK(ranks.name(0, 1) == "shm");
  CHECK(ranks.name(1, 2) == "tcp");
  CHECK(ranks.name(3, 4) == "tcp");
  CHECK(ranks.choice().wants_memory());
  CHECK_NOTHROW(ranks.choice().check());
  CHECK(ranks.choice().describe(true) == "two levels, shm, tcp within a node and tcp between");
  CHECK(ranks.choice().describe(false) == "shm, tcp");
}

TEST_CASE("the one transport that is allowed connects or nothing does") {
  const Five tcp(transports(), "tcp"), shm(transports(), "shm");
  CHECK(tcp.name(0, 1) == "tcp");
  CHECK_FALSE(tcp.choice().wants_memory());
  CHECK(tcp.choice().describe(false) == "tcp");
  CHECK(shm.name(0, 1) == "shm");
  CHECK(shm.name(0, 2) == "none");
  CHECK(shm.choice().wants_memory());
  CHECK(test::sentence_of(test::thrown_by([&] { shm.choice().check(); })) ==
        "RONDO_TRANSPORT=shm, but shm does not connect rank 0 (host here, node 0) with rank 2 (host here, node 1)");
}

TEST_CASE("the first row that can connect a pair does, by what both have advertised for it") {
  Transports rows = transports();
  rows.insert(rows.begin(), test::queue_row());
  rows[0].can_connect = [](const Party& one, const Party& other) {
    return !one.advertised.empty() && std::ranges::equal(one.advertised, other.advertised);
  };
  Five ranks(rows);
  for (const int rank : {0, 1, 4}) ranks.card(rank).advertised[0] = {std::byte{1}};
  ranks.card(2).advertised[0] = {std::byte{2}};
  ranks.card(2).advertised[1] = {std::byte{1}};  // for another
  CHECK(ranks.name(0, 1) == "queue");
  CHECK(ranks.name(1, 4) == "queue");
  CHECK(ranks.name(1, 2) == "tcp");
  CHECK(ranks.name(3, 4) == "tcp");
  rows.pop_back();
  rows.pop_back();
  CHECK(test::sentence_of(test::thrown_by([&] { ranks.choice().check(); })) ==
        "no transport connects rank 0 (host here, node 0) with rank 2 (host here, node 1)");
}
