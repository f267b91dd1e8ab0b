// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/node_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <rondo/error.hpp>

#include "comm/base/duration.hpp"
#include "comm/base/plain_text.hpp"

namespace rondo::launcher {
namespace {

constexpr std::array<std::string_view, 4> kDecisions{"ends", "goes on", "again", "anew"};
constexpr std::string_view kClosed = "closed ", kStaysAway = "stays away: ";
constexpr int kMostStarts = 1 << 20, kHighestNode = 1 << 20, kMostRanksThere = 1 << 20, kHighestExitCode = 255;
constexpr int kMostArrivals = 1 << 30;

// Numbers with one space behind each, and a rest.
class Word {
 public:
  Word(std::string_view text, std::string_view who, std::string_view what) : text_(text), who_(who), what_(what) {}

  template <class Number>
  Number number(Number low, Number high) {
    Number value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{} || value < low || value > high) refuse();
    at_ = static_cast<std::size_t>(end - text_.data());
    if (!is_over() && text_[at_++] != ' ') refuse();
    return value;
  }
  bool begins_with(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string line() {
    const auto end = text_.find('\n', at_);
    if (end == text_.npos) refuse();
    const auto begin = std::exchange(at_, end + 1);
    return std::string(text_.substr(begin, end - begin));
  }
  std::string rest() { return std::string(text_.substr(std::exchange(at_, text_.size()))); }
  bool is_over() const { return at_ == text_.size(); }
  void must_be_over() const {
    if (!is_over()) refuse();
  }
  [[noreturn]] void refuse() const {
    constexpr std::size_t kShown = 100;
    throw Error(ErrorCode::corrupt_message,
                fmt::format("{} says '{}', which is no {}: install the same rondorun on every host", who_,
                            plain_text(text_, kShown), what_));
  }

 private:
  std::string_view text_, who_, what_;
  std::size_t at_ = 0;
};

}  // namespace

std::string word_of(Decision decision) { return std::string(kDecisions[static_cast<std::size_t>(decision)]); }
Decision decision_from(std::string_view text, std::string_view who) {
  const auto* const found = std::find(kDecisions.begin(), kDecisions.end(), text);
  if (found == kDecisions.end()) Word(text, who, "decision on what follows a failure").refuse();
  return static_cast<Decision>(found - kDecisions.begin());
}

std::string text_of(const Verdict& verdict) {
  return fmt::format("{} {} {}", verdict.exit_code, verdict.rank, verdict.sentence);
}
Verdict verdict_from(std::string_view text, std::string_view who) {
  constexpr int kNoRank = -2;  // or -1
  Word word(text, who, "verdict: exit code, rank and sentence");
  Verdict verdict;
  verdict.exit_code = word.number(kLost, kHighestExitCode);
  verdict.rank = word.number(kNoRank, kHighestNode);
  verdict.sentence = word.rest();
  return verdict;
}

std::string text_of_start(int start) { return std::to_string(start); }
int start_from(std::string_view text, std::string_view who) {
  Word word(text, who, "number of a start");
  const int start = word.number(0, kMostStarts);
  word.must_be_over();
  return start;
}

std::string text_of(const Arrival& arrival) {
  if (arrival.stays_away) return fmt::format("{}{}", kStaysAway, arrival.wish);
  return fmt::format("{} {}", arrival.was_there ? 1 : 0, arrival.wish);
}
Arrival arrival_from(std::string_view text, std::string_view who) {
  Word word(text, who, "arrival: whether it was there, and its node");
  Arrival arrival;
  arrival.stays_away = word.begins_with(kStaysAway);
  if (!arrival.stays_away) arrival.was_there = word.number(0, 1) == 1;
  arrival.wish = word.number(0, kHighestNode);
  word.must_be_over();
  return arrival;
}

std::string text_of(const Members& members) {
  if (members.closed) return fmt::format("{}{} {}", kClosed, members.exit_code, members.sentence);
  return fmt::format("{} {}", members.restarts, fmt::join(members.chosen, " "));
}
Members members_from(std::string_view text, std::string_view who) {
  Word word(text, who, "list of those who were chosen for a start");
  Members members;
  members.closed = word.begins_with(kClosed);
  if (members.closed) {
    members.exit_code = word.number(0, kHighestExitCode);
    members.sentence = word.rest();
    return members;
  }
  members.restarts = word.number(0, kMostStarts);
  do {
    members.chosen.push_back(word.number(1, kMostArrivals));
  } while (!word.is_over());
  return members;
}

std::string text_of(const NodeWord& word) {
  return fmt::format("{} {} {} {} {}\n{}", word.nodes, word.local_size, word.port, word.grace.count(), word.launcher,
                     word.role);
}
NodeWord node_word_from(std::string_view text, std::string_view who) {
  Word word(text, who, "node: nodes, ranks, port, grace period, launcher and role");
  NodeWord node;
  node.nodes = word.number(1, kHighestNode);
  node.local_size = word.number(1, kMostRanksThere);
  node.port = word.number<std::uint16_t>(0, UINT16_MAX);
  node.grace = std::chrono::milliseconds(word.number<std::int64_t>(0, kForEver.count()));
  node.launcher = word.line();
  node.role = word.rest();
  return node;
}

}  // namespace rondo::launcher
