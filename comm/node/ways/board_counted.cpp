// SPDX-License-Identifier: Apache-2.0
// all_to_all_v on the board. Each rank knows only its own counts: they go with the arrival, and with them as much of
// every block as fits. Then all know how many chunks the longest block takes, both ends of a pair whether they agree,
// and everybody whether the rest can be taken from where it lies.
#include <algorithm>

#include "comm/base/majority.hpp"
#include "comm/node/ways/board_collectives.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t kRound = 64;  // bytes

// Beside the flag.
struct Sender {
  Spot spot;                     // of its send buffer,
  std::uint64_t bytes, longest;  // which is so long; elements of its longest block
  std::uint64_t in_ring;         // what it brings lies there, not behind the arrival
};
static_assert(sizeof(Sender) <= Arrival::kPayload);

// At the begin of what a rank brings, for each reader.
struct Piece {
  std::uint64_t sent, expected, before;  // elements to the reader, from it, to those before it
  std::uint64_t at;                      // bytes to where the first of them lie
};
static_assert(sizeof(Piece) == Lead::kHeadOfEach);

}  // namespace

BoardCollectives::Counted BoardCollectives::plan_counted(const Call& call) {
  const auto lay_out = [](std::span<const std::size_t> counts) {
    std::vector<Range> blocks;
    for (std::size_t at = 0; const std::size_t count : counts) {
      blocks.push_back({at, count});
      at += count;
    }
    return blocks;
  };
  Counted plan{.sent = lay_out(call.send_counts), .received = lay_out(call.recv_counts)};
  for (const std::size_t count : call.send_counts) {
    plan.bytes += count * size_of(call.dtype);
    plan.longest = std::max(plan.longest, count);
  }
  return plan;
}

bool BoardCollectives::run_counted(const Counted& plan, const Call& call, std::chrono::milliseconds timeout) {
  begin(timeout);
  const CallFrame at_first{
      .call = call, .index = rank_, .ranks = size_, .blocks = plan.sent, .recv_blocks = plan.received};
  const std::size_t step = lead_.part / at_first.element;
  Straight way = Straight::no;
  std::size_t longest = 0;
  bool goes_straight = false;
  direct_.guarded([&] {
    const Heard heard = exchange_lead({at_first, {}}, plan, step);
    longest = heard.longest;
    way = chooser_.straight(longest * at_first.element, longest <= step, heard.within_reach, heard.in_processes);
    goes_straight = way != Straight::no && longest > step;
    if (goes_straight) pull_blocks({at_first, stores_of(at_first)}, step, way);
  });
  if (!goes_straight && longest > step) exchange({at_first, stores_of(at_first)}, longest, step);
  prepare_lead(longest * at_first.element, chooser_.stays_straight(longest * at_first.element, way));
  return goes_straight;
}

// Of the next call, for the longest block of this one, which all know.
void BoardCollectives::prepare_lead(std::size_t longest_bytes, bool straight) {
  if (longest_bytes == lead_made_for_ && straight == lead_straight_) return;
  lead_ = chooser_.lead(longest_bytes, straight);
  lead_made_for_ = longest_bytes;
  lead_straight_ = straight;
}

bool BoardCollectives::brings_in_ring(const CallFrame& frame, std::size_t step) const {
  std::size_t count = 0;
  for (int r = 0; r < size_; ++r) count += r == rank_ ? 0 : std::min(frame.block(r).count, step);
  return chooser_.brings_in_ring(lead_, count * frame.element);
}

BoardCollectives::Heard BoardCollectives::exchange_lead(const Frame& frame, const Counted& plan, std::size_t step) {
  const std::uint64_t meeting = board_.take_line(sizeof(Sender));
  const Places places{.turn = board_.take_body(), .ring = size_ == 2 ? Place{} : flow_.reserve(lead_.room)};
  const Reach& reach = direct_.reach();
  const bool tells = reach.possible() || direct_.may_fetch();
  const Spot spot = tells ? reach.describe(frame.call.send, plan.bytes) : Spot{};
  const bool in_ring = brings_in_ring(frame, step);
  bring_lead(frame, in_ring ? flow_.at(rank_, places.ring) : board_.body(rank_, places.turn), in_ring, step);
  new (board_.payload(rank_, meeting))
      Sender{.spot = spot, .bytes = plan.bytes, .longest = plan.longest, .in_ring = in_ring};
  board_.arrive();
  board_.give_way();
  const Range mine = frame.block(rank_);
  const std::size_t kept = std::min(mine.count, step);
  copy_result(frame, frame.recv(frame.recv_block(rank_).offset), frame.send(mine.offset), kept);
  board_.hold_back(board_.readings(chooser_.holds_back_counted(kept * frame.element)));
  board_.await_all();
  const bool empty = plan.bytes == 0;
  Heard heard{
      .longest = plan.longest,
      .within_reach = may_pull_ && reach.possible() && (empty || reach.find(rank_, spot, plan.bytes) != nullptr),
      .in_processes = may_pull_ && direct_.may_fetch() && (empty || spot.kind == Spot::Kind::process)};
  sources_[as_size(rank_)] = frame.send(mine.offset);
  for (int turn = 1; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    take_lead(frame, r, step, places, board_.payload(r, meeting), heard);
  }
  return heard;
}

void BoardCollectives::bring_lead(const CallFrame& frame, std::byte* into, bool in_ring, std::size_t step) {
  std::size_t at = lead_.head;
  for (int turn = 1; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    const Range theirs = frame.block(r);
    const std::size_t brought = std::min(theirs.count, step) * frame.element;
    new (into + as_size(r) * sizeof(Piece)) Piece{theirs.count, frame.call.recv_counts[as_size(r)], theirs.offset, at};
    if (brought != 0)
      kernels::copy(into + at, frame.send(theirs.offset), brought,
                    in_ring ? ring_stores_.stores(brought, r) : kernels::Stores::plain);
    at += (brought + kRound - 1) / kRound * kRound;
  }
  if (in_ring) ring_stores_.wrote();
}

// Every rank draws the same conclusion about what is within reach. What has no bytes is.
void BoardCollectives::take_lead(const Frame& frame, int from, std::size_t step, const Places& places,
                                 const std::byte* beside_flag, Heard& heard) {
  const auto& sender = *reinterpret_cast<const Sender*>(beside_flag);
  const std::byte* const place = sender.in_ring != 0 ? flow_.at(from, places.ring) : board_.body(from, places.turn);
  const Piece piece = reinterpret_cast<const Piece*>(place)[rank_];
  if (sender.in_ring != 0) ring_stores_.read();
  compare_counts(frame, from, piece.sent, piece.expected);
  heard.longest = std::max<std::size_t>(heard.longest, sender.longest);
  const bool in_process = sender.spot.kind == Spot::Kind::process;
  const std::byte* buffer = nullptr;
  if (heard.within_reach) buffer = direct_.reach().find(from, sender.spot, sender.bytes);
  heard.within_reach = heard.within_reach && (sender.bytes == 0 || buffer != nullptr);
  heard.in_processes = heard.in_processes && (sender.bytes == 0 || in_process);
  if (in_process) buffer = reinterpret_cast<const std::byte*>(sender.spot.at);
  sources_[as_size(from)] = buffer == nullptr ? nullptr : buffer + piece.before * frame.element;
  const Range theirs = frame.recv_block(from);
  copy_result(frame, frame.recv(theirs.offset), place + piece.at, std::min(theirs.count, step));
}

void BoardCollectives::compare_counts(const CallFrame& frame, int peer, std::size_t sent, std::size_t expected) const {
  const auto check = [&](std::size_t mine, std::size_t theirs) {
    if (mine == theirs) return;
    Signature own = board_.signature(), other = own;
    own.count = mine;
    other.count = theirs;
    const int rank = board_.rank_of(peer);
    throw either_of(ErrorCode::mismatch, compare(team_.rank(), own, rank, other), team_.rank(), rank);
  };
  check(frame.call.recv_counts[as_size(peer)], sent);
  check(frame.call.send_counts[as_size(peer)], expected);
}

// All but the first elements of every block.
void BoardCollectives::pull_blocks(const Frame& frame, std::size_t skipped, Straight way) {
  std::vector<ZeroCopy::Pull> pieces;
  for (int turn = 0; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    const Range theirs = frame.recv_block(r);
    if (theirs.count <= skipped) continue;
    const std::byte* const from = sources_[as_size(r)] + skipped * frame.element;
    pieces.push_back({frame.recv(theirs.offset + skipped), from, r, (theirs.count - skipped) * frame.element});
  }
  direct_.pull(frame, pieces, frame.stores.result, way == Straight::fetches);
}

}  // namespace rondo::comm
