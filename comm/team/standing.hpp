// SPDX-License-Identifier: Apache-2.0
// What is known of each rank when a call does not end, and who of them holds it up.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/base/majority.hpp"
#include "comm/call/signature.hpp"

namespace rondo::comm {

struct Placement;

// How long ranks may take to answer: longer than any are away from each other.
inline constexpr std::chrono::milliseconds kInquiry{300};
// How long a mismatch may take until it is clear who is to blame: others may be on their way to the call in question.
inline constexpr std::chrono::milliseconds kJudging{100};

// A send or a receive that a rank waits in, in a word of memory or of an answer.
struct PackedMessage {
  std::uint64_t word = 0;  // 0: none
  PackedMessage() = default;
  explicit PackedMessage(std::uint64_t packed) : word(packed) {}
  PackedMessage(bool sends, int peer);  // peer -1: any
  std::string describe() const;         // "recv from rank 3"; empty: none
};

// Of one rank, towards a collective that was asked about.
struct Standing {
  bool known = false;       // it has said so, or a neighbour that sees it has; nothing but `at` is valid otherwise
  bool waits = false;       // in the collective of `at`, for others
  bool stopped = false;     // its process is, by a signal or a debugger
  PackedMessage message{};  // that its calling thread waits for
  Signature at{};  // that collective, if the rank has entered it; else the latest that it is known to have entered,
                   // with sequence 0 for none. Of one entered so long ago that nobody remembers it, a later one.
};

// What this rank and another called differently.
struct Difference {
  std::string sentence{};  // empty: nothing
  int peer = -1;
  Signature about{};  // this rank's, of that collective; sequence 0: of none, as of a message
  bool empty() const { return sentence.empty(); }
};

// Of those that are known to have entered that collective, who called the same.
Majority find_majority(std::span<const Standing> standings, std::uint64_t sequence);

// The ranks that a call of that number waits for, in order; empty: all have entered it, and all answer.
std::vector<int> find_late(std::span<const Standing> standings, std::uint64_t sequence);

// "; the last collective that rank 2 (host a, pid 123) is known to have entered is barrier #4", or what else is known.
std::string describe_late(int rank, const Placement& placement, const Standing& standing);

}  // namespace rondo::comm
