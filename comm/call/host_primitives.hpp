// SPDX-License-Identifier: Apache-2.0
// The Primitives concept on host memory: moves over links, slice by slice, straight between the caller's buffers and
// the links' memory. Belongs to one communicator and is used by one thread at a time.
#pragma once
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "comm/team/team.hpp"
#include "comm/team/waiter.hpp"
#include "kernels/algorithms/primitives.hpp"
#include "kernels/reduce.hpp"

namespace rondo::comm {

struct Phase {  // one collective on this rank, or one of its phases
  Signature signature;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  DataType dtype = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  bool reduces = false;
  bool may_hold = false;  // sends, for a while: until it finishes, the rank waits nowhere but here
  // all_to_all_v: what each pair has agreed on, and nobody else knows; its steps carry the pair's count. Else empty.
  std::span<const std::size_t> send_counts{}, recv_counts{};
  // Whom moves name: the ranks of the team at these positions, this one among them; empty: everybody. average divides
  // by the size of the team all the same.
  std::span<const int> members{};
};

class HostPrimitives {
 public:
  HostPrimitives(Team& team, const Config& config);

  void begin(const Phase& phase, std::chrono::milliseconds timeout);
  void turn_to(const Phase& phase);         // of the collective that has begun: other buffers, members, operator
  void reserve_scratch(std::size_t count);  // elements of the job's dtype
  void run(std::span<const kernels::Move> moves);
  void fold(const kernels::Fold& fold);
  std::size_t chunk_capacity() const;
  // One step without bytes to or from each: who must agree that there is nothing to move says so.
  void send_empty(std::span<const int> peers);
  void receive_empty(std::span<const int> peers);
  void settle(const std::byte* begin, std::size_t bytes);  // until nothing is sent from there any more
  void finish();                                           // nor from anywhere else

 private:
  struct Active {  // a move in progress; bytes
    Signature signature;
    std::size_t bytes = 0, done = 0;
    int from = kernels::kNobody, to = kernels::kNobody;
    const std::byte* local = nullptr;
    std::byte* store = nullptr;
    bool complete = false, scale_local = false;
    kernels::Stores stores = kernels::Stores::plain;
    bool finished = false;  // an empty move travels too, as one step without bytes
  };
  void activate(const kernels::Move& move);
  void run_active();
  bool postpone();
  bool touches_postponed(const std::byte* local, const std::byte* store, std::size_t bytes) const;
  bool copy_on();
  void finish_copy();
  bool does_nothing(const kernels::Move& move) const;
  bool advance_all();
  bool advance(Active& active);
  bool transfer(Active& active);
  std::size_t most_of_step(int peer) const;
  void note_unflushed(int peer);
  void flush_held();
  void handle(Active& active, std::size_t bytes, const std::byte* received);
  void forward(Active& active, const std::byte* data, std::size_t bytes, bool stable);
  bool claim(Active& active);
  bool may_overwrite(const std::byte* store, std::size_t bytes);
  bool gather_contributions(std::size_t bytes);
  void check_header(const StepHeader& header, const Signature& mine, int peer, std::size_t bytes);
  void wait();
  std::byte* resolve(kernels::Location place) const;
  int positions() const { return phase_.members.empty() ? team_.size() : static_cast<int>(phase_.members.size()); }
  int rank_at(int position) const {
    const bool everybody = phase_.members.empty() || position == kernels::kNobody;
    return everybody ? position : phase_.members[static_cast<std::size_t>(position)];
  }
  const std::byte* first_touch(const std::byte* local, std::size_t bytes);

  Team& team_;
  Waiter waiter_;
  std::size_t slice_bytes_, kept_bytes_;
  Phase phase_{};
  std::size_t element_ = 1;  // bytes, a power of two
  int element_bits_ = 0;
  kernels::FoldFunction fold_ = nullptr;
  std::vector<std::byte> scratch_, scaled_;
  std::vector<Active> active_;
  Active postponed_{};  // a long copy within this rank's memory, made while it waits for others
  std::vector<Blocked> blocked_;
  std::vector<int> unflushed_;              // peers whose link may still refer to the caller's memory
  bool holds_ = false;                      // the moves in progress only send, and wait to be flushed
  std::vector<char> sending_, receiving_;   // by peer: an earlier move of this pass holds the link
  std::vector<const void*> contributions_;  // by position, for fold
};

}  // namespace rondo::comm
