// SPDX-License-Identifier: Apache-2.0
// Words of another launcher that no launcher writes are refused by a sentence that says whose they are.
#include "tools/rondorun/node_words.hpp"

#include <functional>
#include <string>
#include <vector>

#include <rondo/error.hpp>

#include "tests/support/catch.hpp"

namespace {

using namespace rondo::launcher;

struct Row {
  std::function<void(const std::string&)> read;
  std::string word, what;
};

}  // namespace

TEST_CASE("a word of another launcher that cannot be read is refused, and says whose it is") {
  const std::string who = "the launcher of node 3";
  const std::vector<Row> rows{
      {[&](const auto& word) { decision_from(word, who); }, "perhaps", "decision on what follows a failure"},
      {[&](const auto& word) { verdict_from(word, who); }, "none", "verdict: exit code, rank and sentence"},
      {[&](const auto& word) { verdict_from(word, who); }, "256 0 x", "verdict: exit code, rank and sentence"},
      {[&](const auto& word) { start_from(word, who); }, "1 2", "number of a start"},
      {[&](const auto& word) { start_from(word, who); }, "", "number of a start"},
      {[&](const auto& word) { arrival_from(word, who); }, "2 0", "arrival: whether it was there, and its node"},
      {[&](const auto& word) { members_from(word, who); }, "0 ", "list of those who were chosen for a start"},
      {[&](const auto& word) { node_word_from(word, who); }, "2 -1 0 0 a",
       "node: nodes, ranks, port, grace period, launcher and role"}};
  for (const Row& row : rows) {
    CAPTURE(row.word, row.what);
    std::string sentence;
    try {
      row.read(row.word);
    } catch (const rondo::Error& error) {
      CHECK(error.error_code() == rondo::ErrorCode::corrupt_message);
      sentence = error.what();
    }
    CHECK(sentence ==
          who + " says '" + row.word + "', which is no " + row.what + ": install the same rondorun on every host");
  }
}

TEST_CASE("launchers read what they write") {
  for (const auto decision : {Decision::ends, Decision::goes_on, Decision::again, Decision::anew})
    CHECK(decision_from(word_of(decision), "") == decision);
  const auto members = members_from(text_of(Members{.restarts = 2, .chosen = {1, 5, 3}}), "");
  CHECK(members.restarts == 2);
  CHECK(members.chosen == std::vector{1, 5, 3});
  const auto node = node_word_from(text_of(NodeWord{.nodes = 2,
                                                    .local_size = 8,
                                                    .port = 40'000,
                                                    .grace = std::chrono::seconds(9),
                                                    .launcher = "a (pid 17)",
                                                    .role = "a role\nof two lines"}),
                                   "");
  CHECK(node.local_size == 8);
  CHECK(node.port == 40'000);
  CHECK(node.grace == std::chrono::seconds(9));
  CHECK(node.launcher == "a (pid 17)");
  CHECK(node.role == "a role\nof two lines");
}
