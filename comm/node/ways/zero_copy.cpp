// SPDX-License-Identifier: Apache-2.0
#include "comm/node/ways/zero_copy.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace rondo::comm {

ZeroCopy::ZeroCopy(Team& team, const Chooser& chooser, Board& board, Windows& windows)
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
      told_(as_size(size_)) {}

bool ZeroCopy::may_take(const Call& call) {
  timed_ = {};
  why_not_ = find_obstacle(call);
  return why_not_.empty();
}

std::string_view ZeroCopy::find_obstacle(const Call& call) {
  const bool may_copy = chooser_.may_copy(call);
  const std::string_view obstacle = chooser_.why_not_ask(call, reach_.possible(), may_copy);
  if (!obstacle.empty()) return obstacle;
  std::uint8_t& skip = outlook(call.collective, larger_count(call, size_) * size_of(call.dtype)).skip;
  if (skip != 0) --skip;
  return chooser_.why_not_ask(call, reach_.possible(), may_copy, skip != 0);
}

bool ZeroCopy::run(const Call& call) {
  lay_out(counts_of(call), offsets_);
  const std::size_t bytes = larger_count(call, size_) * size_of(call.dtype);
  Outlook& kind = outlook(call.collective, bytes);
  kind.backwards = !kind.backwards && chooser_.sweeps(bytes);
  const Frame frame{{.call = call, .index = rank_, .ranks = size_, .offsets = offsets_},
                    chooser_.stores_in_place(call),
                    kind.backwards};
  const bool may_copy = chooser_.may_copy(call);
  const bool copy_goes_on = chooser_.copies_for_root_alone(call) && may_copy && kind.times.goes_on();
  const bool root_alone = copy_goes_on || (kind.root_reached && chooser_.asks_root_alone(call));
  latest_ = root_alone ? run_with_root(frame, kind, copy_goes_on) : run_with_all(frame, kind, may_copy);
  if (latest_ == Went::copied) why_copied_ = chooser_.why_copied(call);
  return latest_ != Went::elsewhere;
}

ZeroCopy::Went ZeroCopy::run_with_all(const Frame& frame, Outlook& kind, bool may_copy) {
  Went went = Went::elsewhere;
  bool copies = false;
  guarded([&] {
    const std::uint64_t all_came = meet(frame, std::exchange(kind.took_us, 0));
    if (reach_.possible()) {
      find_buffers(frame);
      if (const InPlace way = choose_way(frame); way.goes) {
        went = Went::straight;
        return move(frame, way, false);
      }
    }
    copies = may_copy && (!reach_.possible() || all_in_processes(frame));
    if (!copies) return;
    if (const double slowest_us = slowest(); slowest_us > 0) {
      if (size_ == 2 && kind.times.copied())
        kind.balance.took(told_[0].said, told_[1].said, !frame.row.rooted && !frame.row.reduces);
      kind.times.took(static_cast<float>(slowest_us));
    }
    const bool copy_promises = chooser_.copies_promise(frame.call, all_in_place(frame));
    if (kind.times.next(copy_promises) == WayTimes::Way::copy) {
      went = Went::copied;
      kind.took_us = us_between(all_came, copy_blocks(frame, kind.balance.shift()));
      return;
    }
    // In a crowd most ranks leave late, when they have their turn.
    timed_ = {&kind, copy_promises && board_.crowded() ? all_came : std::max(all_came, read_ticks())};
  });
  const std::size_t root = as_size(std::max(frame.call.root, 0));
  kind.root_reached = went == Went::straight && of_root(frame, recv_, send_)[root] != nullptr;
  if (went == Went::straight || (copies && kind.times.meets())) {
    kind.misses = kind.skip = 0;
  } else {
    kind.missed();
  }
  if (went == Went::elsewhere) why_not_ = chooser_.why_not_straight(copies, false);
  return went;
}

// Where the others' buffers lie is not known then.
ZeroCopy::Went ZeroCopy::run_with_root(const Frame& frame, Outlook& kind, bool may_copy) {
  Went went = Went::elsewhere;
  guarded([&] {
    await_root(frame);
    const std::size_t root = as_size(frame.call.root);
    const Spot& spot = of_root(frame, told_[root].recv, told_[root].send);
    std::byte*& buffer = of_root(frame, recv_, send_)[root];
    buffer = reach_.find(frame.call.root, spot, frame.larger_bytes());
    kind.root_reached = buffer != nullptr;
    if (kind.root_reached) {
      went = Went::straight;
      return move(frame, chooser_.with_root(frame.call.collective, true), true);
    }
    if (!may_copy || spot.kind != Spot::Kind::process) return;
    went = Went::copied;
    copy_blocks(frame, 0);
  });
  if (went != Went::elsewhere) return went;
  kind.missed();
  why_not_ = chooser_.why_not_straight(may_copy, true);
  return went;
}

// Calls that go another way for good do not meet here.
void ZeroCopy::went_another_way() {
  if (timed_.kind != nullptr) timed_.kind->took_us = us_between(timed_.since, read_ticks());
}

// Ticks of two cores may differ a little. What a tick is becomes known better with time.
float ZeroCopy::us_between(std::uint64_t begin, std::uint64_t end) {
  constexpr double kLeast = 0.01;
  constexpr std::uint32_t kBetween = 256;
  if (timed_calls_++ % kBetween == 0) us_per_tick_ = scale_.us_per_tick();
  return static_cast<float>(end > begin ? std::max(us_per_tick_ * static_cast<double>(end - begin), kLeast) : kLeast);
}

double ZeroCopy::slowest() const { return std::ranges::max(told_, {}, &Told::said).said; }

void ZeroCopy::pull(const CallFrame& call, std::span<const Pull> pieces, kernels::Stores stores, bool fetches) {
  latest_ = fetches ? Went::copied : Went::straight;
  if (fetches) why_copied_ = chooser_.why_copied(call.call);
  std::size_t bytes = 0;
  for (const Pull& piece : pieces) bytes += piece.bytes;
  const bool backwards = pulled_backwards_ = !pulled_backwards_ && chooser_.sweeps(bytes);
  touch();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Pull& piece = pieces[backwards ? pieces.size() - 1 - i : i];
    if (fetches && piece.whose != rank_) {
      copied_.fetch(call, piece.whose, piece.into, reinterpret_cast<std::uintptr_t>(piece.from), piece.bytes,
                    backwards);
    } else {
      copy_bytes(piece.into, piece.from, piece.bytes, stores, backwards);
    }
  }
  let_go();
  board_.meet();
}

ZeroCopy::Outlook& ZeroCopy::outlook(Collective collective, std::size_t bytes) {
  const std::uint64_t kind = bytes * kCollectiveCount + static_cast<std::uint64_t>(collective);
  Outlook& found = outlooks_[(kind * 0x9e3779b97f4a7c15 >> 32) % kKinds];
  if (found.kind != kind) found = {};
  found.kind = kind;
  return found;
}

Told ZeroCopy::announce(const Frame& frame, std::uint64_t meeting, float took_us) const {
  const Told own{.send = reach_.describe(frame.call.send, frame.send_bytes(rank_)),
                 .recv = reach_.describe(frame.call.recv, frame.recv_bytes(rank_)),
                 .said = frame.scales ? frame.call.op.factor() : took_us,
                 .came = read_ticks()};
  std::memcpy(board_.payload(rank_, meeting), &own, sizeof own);
  return own;
}

// A rank's own arrival is another's to overwrite.
std::uint64_t ZeroCopy::meet(const Frame& frame, float took_us) {
  const std::uint64_t meeting = board_.take_line(sizeof(Told));
  const Told own = announce(frame, meeting, took_us);
  board_.meet();
  std::uint64_t all_came = 0;
  for (int i = 0; i < size_; ++i) {
    Told& told = told_[as_size(i)];
    told = own;
    if (i != rank_) std::memcpy(&told, board_.payload(i, meeting), sizeof told);
    all_came = std::max(all_came, told.came);
  }
  return all_came;
}

// Instead of a meeting of all.
void ZeroCopy::await_root(const Frame& frame) {
  const int root = frame.call.root;
  Told& told = told_[as_size(root)];
  if (rank_ == root) {
    told = announce(frame, board_.take_line(sizeof told), 0);
    return board_.arrive();
  }
  board_.settle_own();
  board_.arrive(Board::kNobody);
  board_.await(root);
  std::memcpy(&told, board_.payload(root, board_.meeting()), sizeof told);
}

// An empty buffer is within everybody's reach.
void ZeroCopy::find_buffers(const Frame& frame) {
  static std::byte nothing{};
  for (int i = 0; i < size_; ++i) {
    const auto find = [&](const Spot& spot, std::size_t bytes) {
      return bytes == 0 ? &nothing : reach_.find(i, spot, bytes);
    };
    send_[as_size(i)] = find(told_[as_size(i)].send, frame.send_bytes(i));
    recv_[as_size(i)] = find(told_[as_size(i)].recv, frame.recv_bytes(i));
  }
}

// Whether what it needs is within reach, and who moves it. All ranks draw the same conclusion.
InPlace ZeroCopy::choose_way(const Frame& frame) const {
  const std::size_t root = as_size(std::max(frame.call.root, 0));
  return chooser_.in_place(frame.call.collective, {.all_send = reaches_all(send_),
                                                   .all_receive = reaches_all(recv_),
                                                   .root_sends = send_[root] != nullptr,
                                                   .root_receives = recv_[root] != nullptr});
}

// Buffers in windows, beside ordinary ones, are nobody's to copy like this.
bool ZeroCopy::all_in_processes(const Frame& frame) const {
  const auto is_there = [](const Spot& spot, std::size_t bytes) {
    return bytes == 0 || spot.kind == Spot::Kind::process;
  };
  for (int i = 0; i < size_; ++i) {
    const Told& told = told_[as_size(i)];
    if (!is_there(told.send, frame.send_bytes(i)) || !is_there(told.recv, frame.recv_bytes(i))) return false;
  }
  return true;
}

// Of an all_gather: each rank brings what lies where its block belongs.
bool ZeroCopy::all_in_place(const Frame& frame) const {
  for (int i = 0; i < size_; ++i) {
    const Told& told = told_[as_size(i)];
    if (told.send.at != told.recv.at + frame.block(i).offset * frame.element) return false;
  }
  return true;
}

// Its own block of what goes from it or to it; as all ranks have been told.
bool ZeroCopy::root_in_place(const Frame& frame) const {
  const int root = frame.call.root;
  const Told& told = told_[as_size(root)];
  const Spot &all = of_root(frame, told.recv, told.send), &own = of_root(frame, told.send, told.recv);
  return own.kind == all.kind && own.window == all.window &&
         own.at == all.at + frame.block(root).offset * frame.element;
}

std::uint64_t ZeroCopy::copy_blocks(const Frame& frame, int shift) {
  touch();
  const std::byte* const left = copied_.run(frame, told_, shift, frame.backwards);
  const std::uint64_t did_own = read_ticks();
  let_go();
  return copied_.finish(frame, left) ? read_ticks() : did_own;
}

// Where anybody can do anybody's share, whoever is running does what nobody has begun, and who finds all of it done
// need not meet the others again.
void ZeroCopy::move(const Frame& frame, const InPlace& way, bool root_alone) {
  touch();
  const Move move{frame, way, chooser_.shares(frame.call, way), send_, recv_};
  send_[as_size(rank_)] = const_cast<std::byte*>(frame.send(0));
  recv_[as_size(rank_)] = frame.recv(0);
  if (way.shared) {
    claims_.share(
        as_size(move.shares), frame.backwards, [&](std::size_t whose) { do_share(move, static_cast<int>(whose)); },
        [](std::size_t, int) {});
    return let_go();
  }
  do_share(move, rank_);
  let_go();
  if (root_alone && as_size(size_) <= Claims::kMost) return claims_.finish_own(frame.at_root());
  board_.meet();
}

// A rank that fails says so before it looks at this word, and this rank sets it before it looks for a failure: one of
// the two sees the other, so nobody uses buffers that a failed call has given back.
void ZeroCopy::touch() {
  team_.own_line().touching.store(1, std::memory_order_relaxed);
  board_.fence();
  team_.failure().check();
}

// Waits until peers are through with what they do with this rank's buffers: a step or two. A stopped process may never
// be; its own mapping keeps it from harming more than the contents of a window.
void ZeroCopy::retreat(const std::exception& error) {
  constexpr std::chrono::seconds kPatience{5};
  let_go();
  if (!team_.failure().raised()) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && known->error_code() == ErrorCode::peer_lost && known->culprit() >= 0)
      team_.await_verdict(known->culprit());
    team_.fail(known != nullptr ? *known : Error(ErrorCode::system, error.what(), team_.rank()));
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

bool ZeroCopy::reaches_all(const std::vector<std::byte*>& buffers) const {
  return std::find(buffers.begin(), buffers.end(), nullptr) == buffers.end();
}

}  // namespace rondo::comm
