// SPDX-License-Identifier: Apache-2.0
#include "comm/node/ways/direct_collectives.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace rondo::comm {

DirectCollectives::DirectCollectives(Team& team, const Chooser& chooser, Board& board, Windows& windows)
    : team_(team),
      board_(board),
      claims_(team, board),
      copied_(team, chooser, board, claims_),
      reach_(team, windows),
      chooser_(chooser),
      rank_(board.index()),
      size_(board.size()),
      send_(as_size(size_)),
      recv_(as_size(size_)),
      lines_(as_size(size_)),
      blocks_(as_size(size_)),
      send_at_(as_size(size_)),
      recv_at_(as_size(size_)),
      factors_(as_size(size_)) {}

bool DirectCollectives::may_take(const Call& call) {
  timed_ = nullptr;
  copied_now_ = false;
  why_not_ = find_obstacle(call);
  return why_not_.empty();
}

std::string_view DirectCollectives::find_obstacle(const Call& call) {
  may_copy_ = chooser_.may_copy(call);
  const std::string_view obstacle = chooser_.why_not_ask(call, reach_.possible(), may_copy_);
  if (!obstacle.empty()) return obstacle;
  std::uint8_t& skip = outlook(call.collective, larger_count(call, size_) * size_of(call.dtype)).skip;
  if (skip != 0) --skip;
  return chooser_.why_not_ask(call, reach_.possible(), may_copy_, skip != 0);
}

bool DirectCollectives::run(const Call& call) {
  load(call);
  Outlook& kind = outlook(call.collective, bytes_);
  backwards_ = kind.backwards = !kind.backwards && chooser_.sweeps(bytes_);
  const CollectiveRow& row = row_of(call.collective);
  const bool copy_goes_on = chooser_.copies_for_root_alone(call) && may_copy_ && kind.times.goes_on();
  if (copy_goes_on || (kind.root_reached && chooser_.asks_root_alone(call))) return run_with_root(kind, copy_goes_on);
  root_alone_ = false;
  bool moved = false, copies = false;
  guarded([&] {
    const std::uint64_t meeting = board_.take_line(sizeof(Line));
    const Line own = announce(meeting, std::exchange(kind.took_us, 0));
    board_.meet();
    read_lines(meeting, own);
    if (reach_.possible()) {
      find_buffers();
      moved = choose_way();
    }
    if (moved) return move();
    copies = may_copy_ && (!reach_.possible() || all_in_processes());
    if (!copies) return;
    if (const double slowest_us = slowest(); slowest_us > 0) {
      if (size_ == 2 && kind.times.copied())
        kind.balance.took(lines_[0].said, lines_[1].said, !row.rooted && !row.reduces);
      kind.times.took(static_cast<float>(slowest_us));
    }
    const bool copy_promises = chooser_.copies_promise(call, all_in_place());
    copied_now_ = kind.times.next(copy_promises) == WayTimes::Way::copy;
    if (copied_now_) return copy_blocks(kind.balance.shift());
    timed_ = &kind;
    // In a crowd most ranks leave late, when they have their turn.
    left_ = copy_promises && board_.is_crowded() ? all_came_ : read_ticks();
  });
  kind.root_reached = moved && (of_root(recv_, send_)[as_size(std::max(call.root, 0))] != nullptr);
  if (copied_now_) kind.took_us = us_between(all_came_, did_own_);
  if (moved || (copies && kind.times.meets())) {
    kind.misses = kind.skip = 0;
  } else {
    kind.missed();
  }
  if (!moved && !copied_now_) why_not_ = chooser_.why_not_straight(copies, false);
  return moved || copied_now_;
}

// Where the others' buffers lie is not known then.
bool DirectCollectives::run_with_root(Outlook& kind, bool may_copy) {
  root_alone_ = true;

  guarded([&] {
    await_root();
    const Line& line = lines_[as_size(call_.root)];
    const Spot& spot = of_root(line.recv, line.send);
    std::byte*& buffer = of_root(recv_, send_)[as_size(call_.root)];
    buffer = reach_.find(call_.root, spot, bytes_);
    kind.root_reached = buffer != nullptr;
    way_ = chooser_.with_root(call_.collective, kind.root_reached);
    if (kind.root_reached) return move();
    copied_now_ = may_copy && spot.kind == Spot::Kind::process;
    if (copied_now_) copy_blocks(0);
  });
  if (kind.root_reached || copied_now_) return true;
  kind.missed();
  why_not_ = chooser_.why_not_straight(may_copy, true);
  return false;
}

// Calls that go another way for good do not meet here.
void DirectCollectives::went_another_way() {
  if (timed_ != nullptr) timed_->took_us = us_between(std::max(all_came_, left_), read_ticks());
}

// Ticks of two cores may differ a little. What a tick is becomes known better with time.
float DirectCollectives::us_between(std::uint64_t begin, std::uint64_t end) {
  constexpr double kLeast = 0.01;
  constexpr std::uint32_t kBetween = 256;
  if (timed_calls_++ % kBetween == 0) us_per_tick_ = scale_.us_per_tick();
  return static_cast<float>(end > begin ? std::max(us_per_tick_ * static_cast<double>(end - begin), kLeast) : kLeast);
}

double DirectCollectives::slowest() const { return std::ranges::max(lines_, {}, &Line::said).said; }

void DirectCollectives::pull(const Call& call, std::span<const Pull> pieces, kernels::Stores stores, bool fetches) {
  stores_ = stores;
  copied_now_ = fetches;
  std::size_t bytes = 0;
  for (const Pull& piece : pieces) bytes += piece.bytes;
  backwards_ = pulled_backwards_ = !pulled_backwards_ && chooser_.sweeps(bytes);
  touch();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Pull& piece = pieces[backwards_ ? pieces.size() - 1 - i : i];
    if (fetches && piece.whose != rank_) {
      copied_.fetch(call, piece.whose, piece.into, reinterpret_cast<std::uintptr_t>(piece.from), piece.bytes,
                    backwards_);
    } else {
      copy_bytes(piece.into, piece.from, piece.bytes);
    }
  }
  let_go();
  board_.meet();
}

void DirectCollectives::load(const Call& call) {
  call_ = call;
  element_ = size_of(call.dtype);
  scales_ = row_of(call.collective).reduces && call.op == ReduceOp::premultiplied_sum;
  lay_out(counts_of(call_), offsets_);
  bytes_ = larger_count(call_, size_) * element_;
  stores_ = chooser_.stores_in_place(call);
}

DirectCollectives::Outlook& DirectCollectives::outlook(Collective collective, std::size_t bytes) {
  const std::uint64_t kind = bytes * kCollectiveCount + static_cast<std::uint64_t>(collective);
  Outlook& found = outlooks_[(kind * 0x9e3779b97f4a7c15 >> 32) % kKinds];
  if (found.kind != kind) found = {};
  found.kind = kind;
  return found;
}

DirectCollectives::Line DirectCollectives::announce(std::uint64_t meeting, float took_us) const {
  const Line line{.send = reach_.describe(call_.send, send_bytes(rank_)),
                  .recv = reach_.describe(call_.recv, recv_bytes(rank_)),
                  .said = scales_ ? call_.op.factor() : took_us,
                  .came = read_ticks()};
  std::memcpy(board_.payload(rank_, meeting), &line, sizeof line);
  return line;
}

// A rank's own arrival is another's to overwrite.
void DirectCollectives::read_lines(std::uint64_t meeting, const Line& own) {
  all_came_ = 0;
  for (int i = 0; i < size_; ++i) {
    Line& line = lines_[as_size(i)];
    line = own;
    if (i != rank_) std::memcpy(&line, board_.payload(i, meeting), sizeof line);
    all_came_ = std::max(all_came_, line.came);
    factors_[as_size(i)] = line.said;
  }
}

// Instead of a meeting of all.
void DirectCollectives::await_root() {
  Line& line = lines_[as_size(call_.root)];
  if (rank_ == call_.root) {
    line = announce(board_.take_line(sizeof line), 0);
    return board_.arrive();
  }
  board_.settle_own();
  board_.arrive(Board::kNobody);
  board_.await(call_.root);
  std::memcpy(&line, board_.payload(call_.root, board_.meeting()), sizeof line);
}

// An empty buffer is within everybody's reach.
void DirectCollectives::find_buffers() {
  static std::byte nothing{};
  for (int i = 0; i < size_; ++i) {
    const Line& line = lines_[as_size(i)];
    const auto find = [&](const Spot& spot, std::size_t bytes) {
      return bytes == 0 ? &nothing : reach_.find(i, spot, bytes);
    };
    send_[as_size(i)] = find(line.send, send_bytes(i));
    recv_[as_size(i)] = find(line.recv, recv_bytes(i));
  }
}

// Whether what it needs is within reach, and who moves it. All ranks draw the same conclusion.
bool DirectCollectives::choose_way() {
  const std::size_t root = as_size(std::max(call_.root, 0));
  way_ = chooser_.in_place(call_.collective, {.all_send = reaches_all(send_),
                                              .all_receive = reaches_all(recv_),
                                              .root_sends = send_[root] != nullptr,
                                              .root_receives = recv_[root] != nullptr});
  return way_.goes;
}

// Buffers in windows, beside ordinary ones, are nobody's to copy like this.
bool DirectCollectives::all_in_processes() const {
  const auto is_there = [](const Spot& spot, std::size_t bytes) {
    return bytes == 0 || spot.kind == Spot::Kind::process;
  };
  for (int i = 0; i < size_; ++i) {
    const Line& line = lines_[as_size(i)];
    if (!is_there(line.send, send_bytes(i)) || !is_there(line.recv, recv_bytes(i))) return false;
  }
  return true;
}

// Of an all_gather: each rank brings what lies where its block belongs.
bool DirectCollectives::all_in_place() const {
  for (int i = 0; i < size_; ++i) {
    const Line& line = lines_[as_size(i)];
    if (line.send.at != line.recv.at + block(i).offset * element_) return false;
  }
  return true;
}

// Its own block of what goes from it or to it; as all ranks have been told.
bool DirectCollectives::root_in_place() const {
  const Line& root = lines_[as_size(call_.root)];
  const bool gathers = row_of(call_.collective).recv_at_root;
  const Spot &all = gathers ? root.recv : root.send, &own = gathers ? root.send : root.recv;
  return own.kind == all.kind && own.window == all.window && own.at == all.at + block(call_.root).offset * element_;
}

void DirectCollectives::copy_blocks(int shift) {
  for (int i = 0; i < size_; ++i) {
    const Line& line = lines_[as_size(i)];
    blocks_[as_size(i)] = block(i);
    send_at_[as_size(i)] = line.send.at;
    recv_at_[as_size(i)] = line.recv.at;
  }
  touch();
  copied_.run(call_, blocks_, {send_at_, recv_at_}, shift, backwards_);
  did_own_ = read_ticks();
  let_go();
  if (copied_.finish()) did_own_ = read_ticks();
}

// Where anybody can do anybody's share, whoever is running does what nobody has begun, and who finds all of it done
// need not meet the others again.
void DirectCollectives::move() {
  touch();
  shares_ = chooser_.shares(call_, way_);
  send_[as_size(rank_)] = const_cast<std::byte*>(static_cast<const std::byte*>(call_.send));
  recv_[as_size(rank_)] = static_cast<std::byte*>(call_.recv);
  if (way_.shared) {
    claims_.share(
        as_size(shares_), backwards_, [&](std::size_t whose) { do_share(static_cast<int>(whose)); },
        [](std::size_t, int) {});
    return let_go();
  }
  do_share(rank_);
  let_go();
  if (root_alone_ && as_size(size_) <= Claims::kMost) return claims_.finish_own(rank_ == call_.root);
  board_.meet();
}

// A rank that fails says so before it looks at this word, and this rank sets it before it looks for a failure: one of
// the two sees the other, so nobody uses buffers that a failed call has given back.
void DirectCollectives::touch() {
  team_.own_line().touching.store(1, std::memory_order_relaxed);
  board_.fence();
  team_.failure().check();
}

// Waits until peers are through with what they do with this rank's buffers: a step or two. A stopped process may never
// be; its own mapping keeps it from harming more than the contents of a window.
void DirectCollectives::retreat(const std::exception& error) {
  constexpr std::chrono::seconds kPatience{5};
  let_go();
  if (!team_.failure().raised()) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    const int culprit = known != nullptr ? known->culprit() : team_.rank();
    if (known != nullptr && known->error_code() == ErrorCode::peer_lost && culprit >= 0) team_.await_verdict(culprit);
    team_.fail(known != nullptr ? known->error_code() : ErrorCode::system, culprit, error.what());
  }
  team_.bells().fence(team_.own_index());
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (int i = 0; i < size_; ++i) {
    const RankLine& line = team_.segment().line(i);
    while (line.touching.load(std::memory_order_acquire) != 0 && line.lost.load(std::memory_order_acquire) == 0 &&
           std::chrono::steady_clock::now() < until) {
      sched_yield();
    }
  }
}

bool DirectCollectives::reaches_all(const std::vector<std::byte*>& buffers) const {
  return std::find(buffers.begin(), buffers.end(), nullptr) == buffers.end();
}

std::size_t DirectCollectives::bytes_of(Extent extent, int index) const {
  switch (extent) {
    case Extent::none:
      return 0;
    case Extent::one:
      return (counts_of(call_).empty() ? call_.count : block(index).count) * element_;
    case Extent::world:
      return call_.count * as_size(size_) * element_;
    case Extent::counts:
      return bytes_;
  }
  return 0;
}

std::size_t DirectCollectives::send_bytes(int index) const {
  const CollectiveRow& row = row_of(call_.collective);
  return row.send_at_root && index != call_.root ? 0 : bytes_of(row.send, index);
}
std::size_t DirectCollectives::recv_bytes(int index) const {
  const CollectiveRow& row = row_of(call_.collective);
  return row.recv_at_root && index != call_.root ? 0 : bytes_of(row.recv, index);
}

kernels::Range DirectCollectives::block(int index) const {
  if (counts_of(call_).empty()) return {as_size(index) * call_.count, call_.count};
  return {offsets_[as_size(index)], counts_of(call_)[as_size(index)]};
}

}  // namespace rondo::comm
