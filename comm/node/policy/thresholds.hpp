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
// Bytes that a rank brings where ranks take turns on cores, so that every crossing more costs them a switch each: of an
// all_reduce, since longer ones are summed once for all;
inline constexpr std::size_t kShortSumOfCrowd = 2 << 10;
// where all read all;
inline constexpr std::size_t kShortGatheredOfCrowd = 8 << 10;
// where each is read once, or the root by all;
inline constexpr std::size_t kShortOfCrowd = 32 << 10;
// blocks from or to a root;
inline constexpr std::size_t kShortBlocksOfCrowd = 64 << 10;
// of a reduce, whose root alone reads;
inline constexpr std::size_t kShortReduceOfCrowd = 128 << 10;
// of a reduce_scatter, of which each rank reads but a part.
inline constexpr std::size_t kShortPartsOfCrowd = 512 << 10;
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
// Two ranks' blocks are even if they differ by less than this part: who hands lines over writes what exceeds the
// other's on lines that the other has read last.
inline constexpr std::size_t kEvenPart = 8;
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

// Steps. Between buffers that peers reach, between two looks at the communicator's failure,
inline constexpr std::size_t kStepInPlace = 256 << 10;
// and of an input that is multiplied first.
inline constexpr std::size_t kStepMultiplied = 16 << 10;
// Of what the kernel copies, between two such looks: shorter ones are slower;
inline constexpr std::size_t kStepCopied = 8 << 20;
// backwards, so that what the caches hold comes first;
inline constexpr std::size_t kStepSwept = 512 << 10;
// and of what is summed after such a copy: a cache of the core holds it.
inline constexpr std::size_t kStepSummed = 256 << 10;
// Of this rank's input that is multiplied while others' are folded: the same.
inline constexpr std::size_t kStepFolded = 64 << 10;

// Copies or rings by the times of calls, counted in calls that meet (WayTimes). Where copies promise nothing, so many
// go through the rings before these are tried: most are slower, and short runs had better not see them.
inline constexpr std::size_t kFirstRings = 12;
// Of copies that promise more so many, so that of a program's first calls of a kind one in a hundred at most, those
// that try the rings, take much longer.
inline constexpr std::size_t kFirstCopies = 800;
// Tried in a row: what rings left in the caches suits copies less, so these need more calls,
inline constexpr std::size_t kTriedCopies = 16;
// and rings are as fast at once.
inline constexpr std::size_t kTriedRings = 8;
// Calls of what was chosen until both are tried again;
inline constexpr std::size_t kKeptCopies = 2000;
// few of those through the rings meet.
inline constexpr std::size_t kKeptRings = 32;
// Of copies that need not meet for their own sake one in so many does: to meet takes longer.
inline constexpr std::size_t kCallsPerTold = 128;
// A copy needs a meeting that rings may do without, so it must take so much of their time at most.
inline constexpr float kWorthCopy = 0.95F;
// So many times as long as the other way was: both are tried again.
inline constexpr float kWorse = 1.1F;
// A copy that is tried and takes so many times as long is tried no longer,
inline constexpr float kCopyLost = 1.5F;
// and rings even sooner,
inline constexpr float kRingsLost = 1.25F;
// after so many calls, of which two may have been disturbed.
inline constexpr std::size_t kLeastTriedRings = 4;

// How two ranks share copies, in 1024ths of a call's time that one is ahead of the other (Balance): of more than this
// whatever disturbed one of them is the reason;
inline constexpr std::int64_t kMostAhead = 1024 / 4;
// from here on in the mean of the latest calls the shares are shifted,
inline constexpr std::int64_t kWorthShift = 1024 / 20;
// or from here on, where to do anything for the other takes a call of the kernel more;
inline constexpr std::int64_t kWorthFirstShift = 1024 / 10;
// so many calls,
inline constexpr std::int64_t kBalancedCalls = 16;
// and by so many parts at a time.
inline constexpr int kShiftStep = 2;

// A line that takes longer to read comes from a far core, ns. AMD: most take 20 to 90 where cores share a cache, 130
// and more where not.
inline constexpr double kFarNs = 110;
// Intel's share one on a mesh: 90 to 145, more after a switch, and nothing was ever faster past the caches; two sockets
// were not measured.
inline constexpr double kNeverFarNs = 1000;
// Lines that a rank times one after the other when it begins;
inline constexpr std::uint32_t kFirstDistances = 16;
// and between later ones so many chunks: a look takes as long as a few lines.
inline constexpr std::uint32_t kChunksPerDistance = 16;
// A far line counts for so many near ones, since it is seen more rarely where most peers are on the reader's own core;
inline constexpr int kFarWeight = 2;
// half of this many are believed, and more are forgotten.
inline constexpr int kMostFarWeight = 15;

// Waiting. Polls before a core is given away, which takes until it comes back as long as 50 to 100 of them.
inline constexpr std::uint64_t kPolls = 64;
// In a crowd a rank that waits for other cores alone keeps its own, or chance decides who goes on first, and turns get
// longer.
inline constexpr std::uint64_t kCrowdPolls = 2000;
// Looks between which the clock is read: less than half a pause, and it tells when others came.
inline constexpr int kTimedLooks = 150;
// Where a reading of the clock takes longer, ns, two of them take longer than it is worth to hold back.
inline constexpr double kSlowClockNs = 18;
// Ranks that share cores look where they are in every so many meetings,
inline constexpr std::uint64_t kMeetingsPerLook = 8;
// and move when they have found too many on a core so often: one look may be of yesterday,
inline constexpr int kLooksBeforeMove = 8;
// or later, up to so often: the kernel may have a reason to bring them together again.
inline constexpr int kMostLooksBeforeMove = 1 << 13;

// Rings of a node, all together, that stay in the last-level cache beside what the ranks read and write: with 4 and 8
// ranks, 16 and 32 MiB in all made middle sizes take twice as long. A third is reused within long calls, apart from the
// rest.
inline constexpr std::uint64_t kAllRings = 12 << 20;
// A ring is no shorter for that, however many ranks there are,
inline constexpr std::uint64_t kEnoughRing = 768 << 10;
// and no shorter than this for a small segment's sake.
inline constexpr std::uint64_t kLeastRing = 24 << 10;

}  // namespace rondo::comm::threshold
