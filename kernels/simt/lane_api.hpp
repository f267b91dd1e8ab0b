// SPDX-License-Identifier: Apache-2.0
// What the device seam may ask of the executor. Called by lanes alone; host code uses scheduler.hpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rondo::simt {

struct LaneHead {
  unsigned thread = 0, block = 0, block_threads = 0, grid_blocks = 0;
  int rank = 0;
  bool explore = false, weak = false;
  bool early = false;                    // it has not waited yet for what comes before its kernel on the stream,
  const std::uint32_t* ended = nullptr;  // which is 1 when that has ended; null: it has
  bool watched = false;                  // explore or early: scheduling_point() has something to do
  bool alone = true;                     // it has met no other lane since its kernel began
};
extern constinit thread_local LaneHead* t_lane;  // the running lane; null in host code

struct SourceLocation {  // of a call in a kernel; clang 14 has no std::source_location
  const char* file = nullptr;
  unsigned line = 0;
  static constexpr SourceLocation here(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

void scheduling_point();           // explore: somebody else may run. early: a misuse, for the lane uses memory
void stored(const void* word);     // explore: wakes who watches this line
void exchanges(const void* word);  // traps where Options::may_exchange says that the device cannot

struct Watch {  // a word and the value of it that a lane did not like
  const void* word = nullptr;
  std::uint32_t bytes = 0;  // 4, 8 or 16
  std::uint32_t seen[4]{};
};
// Waits until one of the words (1 or more) is not as seen any more, until *abort (unless null) is not 0, or until the
// lane should look at the clock. Compares values, so no wake-up is lost.
void park(const Watch* watches, unsigned count, const std::uint32_t* abort, SourceLocation place);

// All live threads of the block, or the first `threads` to come at barrier `id`. True when a vote of theirs was.
bool block_barrier(unsigned id, unsigned threads, bool vote, SourceLocation place);

enum class WarpOperation : std::uint8_t { sync, shuffle, ballot, line128_store, line128_load };
// By every lane of the warp. shuffle: the value of lane `source`; ballot: a bit for each value that is not 0.
std::uint64_t warp_meet(WarpOperation operation, std::uint64_t value, unsigned source, SourceLocation place);

void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment);

// Weak stores: a relaxed store waits in its lane's buffer (after a barrier in its block's) until a release by the lane
// (by the block), or until chance lets it out. Stores to one word keep their order, all others may be reordered.
void weak_store(void* word, std::size_t bytes, std::uint64_t value);
bool weak_forward(const void* word, std::size_t bytes, std::uint64_t* value);  // what the lane itself would read
void weak_release();                                                           // before a release

// A credit: a relaxed store that comes after loads, whose memory the reader of the word may then write. Hardware keeps
// that order; C++ has no word for it, and ThreadSanitizer is told what a release would tell it, but only who calls
// after_credit() hears. `word` has the 16 bytes around it to itself. Host code may call after_credit, too.
void before_credit(const void* word);
void after_credit(const void* word);

// A line that opens: a relaxed store that comes before all else a lane does, so that what its kernel found is what
// readers of the line may read. ThreadSanitizer is told so, for who calls after_opening(); a lane that has met others,
// which may have written something, is told that it misuses it.
void before_opening(const void* line);
void after_opening(const void* line);

std::uint64_t timer_ns();     // one clock for all; while exploring it counts steps
std::uint64_t random_bits();  // seeded: for the seam's own choices
[[noreturn]] void trap(const char* why);

}  // namespace rondo::simt
