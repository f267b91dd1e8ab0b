// SPDX-License-Identifier: Apache-2.0
// Every number that the choices among ranks of a node hang on, once, under one name; those that rondo-tune finds out
// are in comm/setup/tuning.hpp. Bytes unless said otherwise. docs/decisions/board.md tells what they won.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rondo::comm::threshold {

// Short calls: of a block. Two ranks hand lines over, or have a core each.
inline constexpr std::size_t kShortOfTwo = 16 << 10;
// More ranks with a core each: what all of them read.
inline constexpr std::size_t kShortOfMany = 1 << 10;
// The same, of one block for each rank in all: a reader takes its own alone.
inline constexpr std::size_t kShortParts = 4 << 10;
// Where two ranks share a core, from here on an exchange keeps the order of their turns.
inline constexpr std::size_t kLeastInOrder = 4 << 10;
// From or to a root of two ranks: longer ones would overwrite what the reader's cache still holds, and lie in a ring.
inline constexpr std::size_t kMostBehindOfTwo = 2 << 10;
// The same with more ranks.
inline constexpr std::size_t kMostBehind = 4 << 10;
// Shorter ones are in time however far the reader's core is, so nobody weighs how they are written.
inline constexpr std::size_t kMostUnweighed = 2 << 10;
// Below, what others read is written through the caches however far they are.
inline constexpr std::size_t kLeastWeighed = 1 << 10;
// To copy so much to oneself takes as long as kHeldBack readings of the clock.
inline constexpr std::size_t kMostInstant = 1 << 10;
// Readings of the clock before the first look at who comes at the same time: a look takes the line away from its
// writer.
inline constexpr int kHeldBack = 2;
// The same where what is summed lies behind the arrivals.
inline constexpr int kHeldBackBehind = 3;
// The same where the only other rank writes behind its arrival.
inline constexpr int kHeldBackFromOne = 4;
// Looks at a broadcast's root on another core before a rank's own core is given away, which takes about as long.
inline constexpr int kPollsForRoot = 100;

// An all_to_all_v's arrivals of more than two ranks bring so much when nothing is known,
inline constexpr std::size_t kLeastLead = 32 << 10;
// and up to so much when the latest call's blocks would have fitted.
inline constexpr std::size_t kMostLead = 512 << 10;
// Its longest block, if it goes straight between buffers: then what came with the arrivals was copied twice.
inline constexpr std::size_t kLeastStraight = 16 << 10;

// Rings: a shorter chunk takes as long to tell of as to copy.
inline constexpr std::size_t kLeastChunk = 16 << 10;
// The same of a call from or to a root in two chunks, of which readers begin one while the other is written.
inline constexpr std::size_t kLeastHalf = 4 << 10;
// Chunks begin at a multiple of so much.
inline constexpr std::size_t kRound = 64;
// A block of which two ranks hand places over; of longer ones a rank had better run ahead.
inline constexpr std::size_t kMostHanded = 16 << 20;
// Chunks in their places of a sum in parts: one is brought while the other is folded.
inline constexpr std::size_t kFoldedPlaces = 2;
// The stretch in which short places turn, so that they touch few pages,
inline constexpr std::size_t kShortStretch = 256 << 10;
// and the longest that do: longer ones were still in the reader's cache when they came round.
inline constexpr std::size_t kShortPlace = 2 << 10;
// Of that stretch the longest place takes a quarter where ranks share cores: most readers are on the writer's own.
inline constexpr std::size_t kShortTurnsOfCrowd = 4;
// Behind a place, a quarter of it, at least
inline constexpr std::size_t kLeastGap = 1 << 10;
// and at most: a core that reads the place fetches on beyond its end.
inline constexpr std::size_t kMostGap = 8 << 10;
// Places of two ranks take turns if so many are in half of what they share: then each has rested when it comes round.
inline constexpr std::size_t kLeastTurns = 4;

// Sums: ranks that share cores are few up to here: only one other rank waits for the core.
inline constexpr int kFewRanks = 4;
// Of few ranks, a sum made once for all: to come back for a longer one costs less than to hold up the other rank.
inline constexpr std::size_t kMostTogetherOfFew = 64 << 10;
// A sum made once for all is cut into pieces, each at least this: a claim takes time.
inline constexpr std::size_t kLeastPiece = 8 << 10;
// Chunks that one of two ranks pours into a reduce's root: so many,
inline constexpr std::size_t kPours = 8;
// each at least
inline constexpr std::size_t kLeastPoured = 8 << 10;
// and at most: the root adds one while the other puts the next.
inline constexpr std::size_t kMostPoured = 64 << 10;

// Buffers in place: a broadcast that ranks who share cores fetch from the root; a longer one is pushed, so that it is
// read once.
inline constexpr std::size_t kMostPulled = 256 << 10;
// All ranks' larger buffers: from here on calls go through them forwards and backwards by turns, as caches overflow,
inline constexpr std::size_t kLeastSwept = 1 << 20;
// by ranks that share cores from here on.
inline constexpr std::size_t kLeastSweptInCrowd = 2 << 20;
// What anybody may do is cut by cores, not ranks, up to here: each claim takes time.
inline constexpr std::size_t kMostByCores = 64 << 10;
// Two ranks' uneven blocks together: from here on each moves half of them.
inline constexpr std::size_t kLeastHalved = 64 << 10;

// Copies by the kernel, us a page: dearer ones are hardly ever faster than two copies by the ranks.
inline constexpr double kCheapPageUs = 0.2;
// Blocks that one of two ranks copies alone: two who copy at once take longer,
inline constexpr std::size_t kMostAlone = 16 << 10;
// and to bring sums takes a call of the kernel more.
inline constexpr std::size_t kMostAddedAlone = 24 << 10;
// Two ranks' sums by such copies: longer inputs leave the caches in between;
inline constexpr std::size_t kMostSummed = 2 << 20;
// the same of sums for both.
inline constexpr std::size_t kMostSummedForBoth = 1 << 20;
// From here on rings are faster, most of them past the caches, as the kernel's copies are not. Two ranks, all of it for
// both; and the blocks of many to a root:
inline constexpr std::size_t kLeastRings = 32 << 20;
// an all_gather of which each rank copies a block of its own besides;
inline constexpr std::size_t kLeastRingsOfGathered = 2 << 20;
// two ranks' blocks from each to each;
inline constexpr std::size_t kLeastRingsOfTwo = 8 << 20;
// such blocks of all ranks together, where there are more.
inline constexpr std::size_t kLeastRingsExchanged = 20 << 20;

}  // namespace rondo::comm::threshold
