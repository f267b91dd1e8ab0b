// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/node_words.hpp"

#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {

using namespace launcher;

// What the launchers of several nodes write for each other: the first byte says which word it is taken for.
void run_node_words(Bytes input) {
  Script script(input);
  const std::uint8_t kind = script.byte();
  const std::string text = text_of(script.rest());
  const std::string who = "the launcher of node 1";
  const auto check = [&](auto read) {
    std::string once;
    if (accepts([&] { once = launcher::text_of(read(text, who)); }))
      expect(launcher::text_of(read(once, who)) == once, "another word than was read: " + once);
  };
  switch (kind % 6) {
    case 0:
      return check(verdict_from);
    case 1:
      return check(arrival_from);
    case 2:
      return check(members_from);
    case 3:
      return check(node_word_from);
    case 4:
      return void(accepts([&] { expect(word_of(decision_from(text, who)) == text, "another decision"); }));
    case 5:
      return void(accepts([&] { expect(start_from(text, who) >= 0, "a start before the first"); }));
  }
}

std::vector<std::string> node_words_seeds() {
  const auto of = [](int kind, const std::string& text) { return std::string(1, static_cast<char>(kind)) + text; };
  std::vector<std::string> seeds{
      of(0, launcher::text_of(Verdict{.exit_code = 3, .rank = 2, .sentence = "rank 2 failed"})),
      of(0, launcher::text_of(Verdict{.exit_code = kLost})),
      of(1, launcher::text_of(Arrival{.wish = 4, .was_there = true})),
      of(1, launcher::text_of(Arrival{.wish = 2, .stays_away = true})),
      of(2, launcher::text_of(Members{.restarts = 1, .chosen = {1, 4, 3}})),
      of(2, launcher::text_of(Members{.closed = true, .sentence = "the job has failed"})),
      of(3, launcher::text_of(NodeWord{.nodes = 2,
                                       .local_size = 4,
                                       .port = 2950,
                                       .grace = std::chrono::seconds(5),
                                       .launcher = "a (pid 17)",
                                       .role = "default"})),
      of(5, text_of_start(7))};
  for (const auto decision : {Decision::ends, Decision::goes_on, Decision::again, Decision::anew})
    seeds.push_back(of(4, word_of(decision)));
  return seeds;
}

}  // namespace rondo::fuzz
