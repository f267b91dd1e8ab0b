// SPDX-License-Identifier: Apache-2.0
// What lanes of counted kernels did: sums of each rank, and chains. A chain is the longest path of what had to happen
// one after the other: through a lane, a barrier or a warp, and from who wrote a flag to who read it, on any rank.
#pragma once
#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rondo::test {

struct Chain {
  unsigned fences = 0, acquires = 0, looks = 0, crossings = 0;
  void join(const Chain& other);
};

struct RankCosts {
  unsigned barriers = 0;  // of the block that passed most
  unsigned fences = 0;    // by all its lanes
  unsigned waits = 0;     // flags of other ranks that it read, each time they were written anew
  unsigned first_barriers = 0, last_barriers = 0;  // passed before the first peer was written to, and the last one
};

class Ledger {
 public:
  // Of one launch by every rank. `begin` and `end` of a rank's region: where peers write when they write to it.
  Ledger(std::vector<std::pair<const std::byte*, const std::byte*>> regions, unsigned blocks, unsigned threads);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  Chain chain() const;
  RankCosts of(int rank) const;

  // ---- what the running lane does; costs.hpp
  void fence();
  void wrote(const void* p);
  void wrote_flag(const void* word);
  void read_flag(const void* word, bool acquires);
  void lines_have_come();
  void come(unsigned barrier);
  void go_on(unsigned barrier);
  void come_to_warp();
  void leave_warp();

 private:
  struct Lane {
    Chain chain;
    unsigned barriers = 0, meetings = 0, warp_meetings = 0;
    bool looks = false;                 // at lines of others, and is not through with them
    std::vector<const void*> acquired;  // since it last met or wrote: looking again is the same wait
  };
  // Of two meetings, since who leaves late finds others at the next.
  struct Meeting {
    unsigned number[2] = {};
    Chain chain[2];
    void come(const Chain& lane, unsigned number_of_this);
  };
  struct Block {
    Meeting whole;
    std::vector<Meeting> warps;
    Chain groups;  // barriers of some threads: whoever has come so far
  };
  struct Flag {
    int writer = 0;
    Chain chain;
    bool counted = false;
  };
  struct Rank {
    unsigned fences = 0, waits = 0;
    std::vector<int> barriers_before;  // for each peer, of the lane that first wrote to it; -1: nobody did
  };
  Lane& lane();
  Block& block();
  std::size_t rank_index() const;

  std::vector<std::pair<const std::byte*, const std::byte*>> regions_;
  unsigned blocks_, threads_;
  std::vector<Lane> lanes_;
  std::vector<Block> all_blocks_;
  std::vector<Rank> ranks_;
  std::unordered_map<std::size_t, Flag> flags_;  // by the 16 bytes in which they lie: a line has two
};

}  // namespace rondo::test
