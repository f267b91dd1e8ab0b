// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device/costs/ledger.hpp"

#include <algorithm>

#include "kernels/device/costs.hpp"
#include "kernels/simt/lane_api.hpp"

namespace rondo::test {
namespace {

Ledger* g_ledger = nullptr;  // all lanes of a run are on one thread

std::size_t line_of(const void* word) { return reinterpret_cast<std::size_t>(word) / 16; }

}  // namespace

void Chain::join(const Chain& other) {
  fences = std::max(fences, other.fences);
  acquires = std::max(acquires, other.acquires);
  looks = std::max(looks, other.looks);
  crossings = std::max(crossings, other.crossings);
}

void Ledger::Meeting::come(const Chain& lane, unsigned number_of_this) {
  const unsigned parity = number_of_this % 2;
  if (number[parity] != number_of_this) {
    number[parity] = number_of_this;
    chain[parity] = {};
  }
  chain[parity].join(lane);
}

Ledger::Ledger(std::vector<std::pair<const std::byte*, const std::byte*>> regions, unsigned blocks, unsigned threads)
    : regions_(std::move(regions)), blocks_(blocks), threads_(threads) {
  const std::size_t ranks = regions_.size();
  lanes_.resize(ranks * blocks * threads);
  all_blocks_.resize(ranks * blocks);
  for (Block& block : all_blocks_) block.warps.resize((threads + 31) / 32);
  ranks_.resize(ranks);
  for (Rank& rank : ranks_) rank.barriers_before.assign(ranks, -1);
  g_ledger = this;
}

Ledger::~Ledger() { g_ledger = nullptr; }

Chain Ledger::chain() const {
  Chain longest;
  for (const Lane& lane : lanes_) longest.join(lane.chain);
  return longest;
}

RankCosts Ledger::of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  RankCosts costs{.fences = ranks_[index].fences, .waits = ranks_[index].waits};
  for (std::size_t i = 0; i < std::size_t{blocks_} * threads_; ++i) {
    costs.barriers = std::max(costs.barriers, lanes_[index * blocks_ * threads_ + i].barriers);
  }
  bool any = false;
  for (const int before : ranks_[index].barriers_before) {
    if (before < 0) continue;
    const auto barriers = static_cast<unsigned>(before);
    costs.first_barriers = any ? std::min(costs.first_barriers, barriers) : barriers;
    costs.last_barriers = std::max(costs.last_barriers, barriers);
    any = true;
  }
  return costs;
}

std::size_t Ledger::rank_index() const { return static_cast<std::size_t>(simt::t_lane->rank); }

Ledger::Block& Ledger::block() { return all_blocks_[rank_index() * blocks_ + simt::t_lane->block]; }

Ledger::Lane& Ledger::lane() {
  return lanes_[(rank_index() * blocks_ + simt::t_lane->block) * threads_ + simt::t_lane->thread];
}

void Ledger::fence() {
  ++lane().chain.fences;
  ++ranks_[rank_index()].fences;
}

void Ledger::wrote(const void* p) {
  lane().acquired.clear();
  const auto* at = static_cast<const std::byte*>(p);
  for (std::size_t rank = 0; rank < regions_.size(); ++rank) {
    if (rank == rank_index() || at < regions_[rank].first || at >= regions_[rank].second) continue;
    int& before = ranks_[rank_index()].barriers_before[rank];
    if (before < 0) before = static_cast<int>(lane().barriers);
  }
}

void Ledger::wrote_flag(const void* word) {
  wrote(word);
  flags_[line_of(word)] = {simt::t_lane->rank, lane().chain, false};
}

void Ledger::read_flag(const void* word, bool acquires) {
  Lane& reader = lane();
  const bool again = std::ranges::find(reader.acquired, word) != reader.acquired.end();
  if (acquires && !again) {
    ++reader.chain.acquires;
    reader.acquired.push_back(word);
  }
  const auto found = flags_.find(line_of(word));
  if (found == flags_.end()) return;  // as it was before the launch
  Flag& flag = found->second;
  Chain through = flag.chain;
  if (acquires) ++through.acquires;
  if (flag.writer != simt::t_lane->rank) {
    ++through.crossings;
    reader.looks = reader.looks || !acquires;
    if (!flag.counted) ++ranks_[rank_index()].waits;
    flag.counted = true;
  }
  reader.chain.join(through);
}

void Ledger::lines_have_come() {
  Lane& reader = lane();
  if (reader.looks) ++reader.chain.looks;
  reader.looks = false;
}

void Ledger::come(unsigned barrier) {
  Lane& who = lane();
  who.acquired.clear();
  if (barrier == 0) {
    block().whole.come(who.chain, ++who.meetings);
  } else {
    block().groups.join(who.chain);
  }
}

void Ledger::go_on(unsigned barrier) {
  Lane& who = lane();
  ++who.barriers;
  who.chain.join(barrier == 0 ? block().whole.chain[who.meetings % 2] : block().groups);
}

void Ledger::come_to_warp() {
  Lane& who = lane();
  block().warps[simt::t_lane->thread / 32].come(who.chain, ++who.warp_meetings);
}

void Ledger::leave_warp() {
  Lane& who = lane();
  who.chain.join(block().warps[simt::t_lane->thread / 32].chain[who.warp_meetings % 2]);
}

}  // namespace rondo::test

namespace rondo::kernels::device::costs {

namespace {

// Counted kernels also run without a ledger: to get links and epochs under way.
template <class F>
void with_ledger(F&& f) {
  if (test::g_ledger != nullptr) f(*test::g_ledger);
}

}  // namespace

void fence() {
  with_ledger([](test::Ledger& ledger) { ledger.fence(); });
}
void wrote(const void* p) {
  with_ledger([p](test::Ledger& ledger) { ledger.wrote(p); });
}
void wrote_flag(const void* word) {
  with_ledger([word](test::Ledger& ledger) { ledger.wrote_flag(word); });
}
void read_flag(const void* word, bool acquires) {
  with_ledger([&](test::Ledger& ledger) { ledger.read_flag(word, acquires); });
}
void lines_have_come() {
  with_ledger([](test::Ledger& ledger) { ledger.lines_have_come(); });
}
BlockMeeting::BlockMeeting(unsigned id) : id_(id) {
  with_ledger([id](test::Ledger& ledger) { ledger.come(id); });
}
BlockMeeting::~BlockMeeting() {
  with_ledger([this](test::Ledger& ledger) { ledger.go_on(id_); });
}
WarpMeeting::WarpMeeting() {
  with_ledger([](test::Ledger& ledger) { ledger.come_to_warp(); });
}
WarpMeeting::~WarpMeeting() {
  with_ledger([](test::Ledger& ledger) { ledger.leave_warp(); });
}

}  // namespace rondo::kernels::device::costs
