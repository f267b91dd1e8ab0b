// SPDX-License-Identifier: Apache-2.0
// all_to_all_v on the board. Each rank knows only its own counts: they go with the arrival, and with them as much of
// every block as fits. Then all know how many chunks the longest block takes, both ends of a pair whether they agree,
// and everybody whether the rest can be taken from where it lies.
#include <algorithm>

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
  call_ = call;
  element_ = size_of(call.dtype);
  blocks_ = plan.sent;
  recv_blocks_ = plan.received;
  scales_ = went_direct_ = false;
  result_stores_ = kernels::Stores::plain;
  const std::size_t step = lead_.part / element_;
  Straight way = Straight::no;
  direct_.guarded([&] {
    exchange_lead(plan, step);
    way = chooser_.straight(longest_ * element_, longest_ <= step, within_reach_, in_processes_);
    if (longest_ <= step) return;
    choose_stores();
    went_direct_ = way != Straight::no;
    if (went_direct_) pull_blocks(step, way);
  });
  if (!went_direct_ && longest_ > step) exchange(step);
  prepare_lead(longest_ * element_, chooser_.stays_straight(longest_ * element_, way));
  return went_direct_;
}

// Of the next call, for the longest block of this one, which all know.
void BoardCollectives::prepare_lead(std::size_t longest_bytes, bool straight) {
  if (longest_bytes == lead_made_for_ && straight == lead_straight_) return;
  lead_ = chooser_.lead(longest_bytes, straight);
  lead_made_for_ = longest_bytes;
  lead_straight_ = straight;
}

bool BoardCollectives::brings_in_ring(std::size_t step) const {
  std::size_t count = 0;
  for (int r = 0; r < size_; ++r) count += r == rank_ ? 0 : std::min(block(r).count, step);
  return chooser_.brings_in_ring(lead_, count * element_);
}

void BoardCollectives::exchange_lead(const Counted& plan, std::size_t step) {
  const std::uint64_t meeting = board_.take_line(sizeof(Sender));
  const Places places{.turn = board_.take_body(), .ring = size_ == 2 ? Place{} : flow_.reserve(lead_.room)};
  const Reach& reach = direct_.reach();
  const bool tells = reach.possible() || direct_.may_fetch();
  const Spot spot = tells ? reach.describe(call_.send, plan.bytes) : Spot{};
  const bool in_ring = brings_in_ring(step);
  bring_lead(in_ring ? flow_.at(rank_, places.ring) : board_.body(rank_, places.turn), in_ring, step);
  new (board_.payload(rank_, meeting))
      Sender{.spot = spot, .bytes = plan.bytes, .longest = plan.longest, .in_ring = in_ring};
  board_.arrive();
  board_.give_way();
  const Range mine = block(rank_);
  const std::size_t kept = std::min(mine.count, step);
  copy_result(recv(recv_block(rank_).offset), send(mine.offset), kept);
  board_.hold_back(board_.readings(chooser_.holds_back_counted(kept * element_)));
  board_.await_all();
  longest_ = plan.longest;
  within_reach_ = may_pull_ && reach.possible() && (plan.bytes == 0 || reach.find(rank_, spot, plan.bytes) != nullptr);
  in_processes_ = may_pull_ && direct_.may_fetch() && (plan.bytes == 0 || spot.kind == Spot::Kind::process);
  sources_[as_size(rank_)] = send(mine.offset);
  for (int turn = 1; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    take_lead(r, step, places, board_.payload(r, meeting));
  }
}

void BoardCollectives::bring_lead(std::byte* into, bool in_ring, std::size_t step) {
  std::size_t at = lead_.head;
  for (int turn = 1; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    const Range theirs = block(r);
    const std::size_t brought = std::min(theirs.count, step) * element_;
    new (into + as_size(r) * sizeof(Piece)) Piece{theirs.count, call_.recv_counts[as_size(r)], theirs.offset, at};
    if (brought != 0)
      kernels::copy(into + at, send(theirs.offset), brought,
                    in_ring ? ring_stores_.stores(brought, r) : kernels::Stores::plain);
    at += (brought + kRound - 1) / kRound * kRound;
  }
  if (in_ring) ring_stores_.wrote();
}

// Every rank draws the same conclusion about what is within reach. What has no bytes is.
void BoardCollectives::take_lead(int from, std::size_t step, const Places& places, const std::byte* beside_flag) {
  const auto& sender = *reinterpret_cast<const Sender*>(beside_flag);
  const std::byte* const place = sender.in_ring != 0 ? flow_.at(from, places.ring) : board_.body(from, places.turn);
  const Piece piece = reinterpret_cast<const Piece*>(place)[rank_];
  if (sender.in_ring != 0) ring_stores_.read();
  compare_counts(from, piece.sent, piece.expected);
  longest_ = std::max<std::size_t>(longest_, sender.longest);
  const bool in_process = sender.spot.kind == Spot::Kind::process;
  const std::byte* buffer = nullptr;
  if (within_reach_) buffer = direct_.reach().find(from, sender.spot, sender.bytes);
  within_reach_ = within_reach_ && (sender.bytes == 0 || buffer != nullptr);
  in_processes_ = in_processes_ && (sender.bytes == 0 || in_process);
  if (in_process) buffer = reinterpret_cast<const std::byte*>(sender.spot.at);
  sources_[as_size(from)] = buffer == nullptr ? nullptr : buffer + piece.before * element_;
  const Range theirs = recv_block(from);
  copy_result(recv(theirs.offset), place + piece.at, std::min(theirs.count, step));
}

void BoardCollectives::compare_counts(int peer, std::size_t sent, std::size_t expected) const {
  const auto check = [&](std::size_t mine, std::size_t theirs) {
    if (mine == theirs) return;
    Signature own = board_.signature(), other = own;
    own.count = mine;
    other.count = theirs;
    throw Error(ErrorCode::mismatch, compare(team_.rank(), own, board_.rank_of(peer), other), board_.rank_of(peer));
  };
  check(call_.recv_counts[as_size(peer)], sent);
  check(call_.send_counts[as_size(peer)], expected);
}

// All but the first elements of every block.
void BoardCollectives::pull_blocks(std::size_t skipped, Straight way) {
  std::vector<DirectCollectives::Pull> pieces;
  for (int turn = 0; turn < size_; ++turn) {
    const int r = (rank_ + turn) % size_;
    const Range theirs = recv_block(r);
    if (theirs.count <= skipped) continue;
    const std::byte* const from = sources_[as_size(r)] + skipped * element_;
    pieces.push_back({recv(theirs.offset + skipped), from, r, (theirs.count - skipped) * element_});
  }
  direct_.pull(call_, pieces, result_stores_, way == Straight::fetches);
}

}  // namespace rondo::comm
