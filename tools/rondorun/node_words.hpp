// SPDX-License-Identifier: Apache-2.0
// What the launchers of a job's nodes write for each other where they meet: each word beside its reader. A reader takes
// a word or throws Error corrupt_message, with one sentence that says whose word it is and what it should be. `who`:
// the launcher, for that sentence.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::launcher {

// After a verdict that is no success.
enum class Decision : std::uint8_t {
  ends,
  goes_on,  // the other ranks, without the one that failed
  again,    // all of them start again, which is one of --max-restarts
  anew,     // the same, as the nodes are others now, which is none
};
std::string word_of(Decision decision);
Decision decision_from(std::string_view text, std::string_view who);

inline constexpr int kLost = -1;  // an exit code: there is no verdict any more, as a launcher is gone
struct Verdict {
  int exit_code = 1, rank = -1;  // as in Failure
  std::string sentence{};
};
std::string text_of(const Verdict& verdict);
Verdict verdict_from(std::string_view text, std::string_view who);

// The number of the start that nodes may come to.
std::string text_of_start(int start);
int start_from(std::string_view text, std::string_view who);

// A launcher that comes to a start; or says of a node that was at the last one that it will not be at this one.
struct Arrival {
  int wish = 0;  // its node, if it may choose
  bool was_there = false, stays_away = false;
};
std::string text_of(const Arrival& arrival);
Arrival arrival_from(std::string_view text, std::string_view who);

// Whom node 0 has chosen for a start, or that there will be none.
struct Members {
  int restarts = 0;           // so far
  std::vector<int> chosen{};  // by node: the number with which it came
  bool closed = false;
  int exit_code = 1;  // then, like
  std::string sentence{};
};
std::string text_of(const Members& members);
Members members_from(std::string_view text, std::string_view who);

// What each node says of itself when all are there.
struct NodeWord {
  int nodes = 1, local_size = 1;
  std::uint16_t port = 0;  // that is free
  std::chrono::milliseconds grace{0};
  std::string launcher{}, role{};  // the first: of one line
};
std::string text_of(const NodeWord& word);
NodeWord node_word_from(std::string_view text, std::string_view who);

}  // namespace rondo::launcher
