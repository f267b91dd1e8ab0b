// SPDX-License-Identifier: Apache-2.0
// One call on one rank: its buffers between guards, the call in one of its spellings, and the verdict.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference.hpp"

namespace consumer {

class Job {
 public:
  virtual ~Job() = default;
  virtual void start(rondo::Communicator& comm) = 0;  // blocking, untyped, window: runs it; async: starts it
  virtual void record(rondo::Group& group) = 0;
  virtual void verify(rondo::Communicator& comm) = 0;  // waits, then throws what is wrong
};

inline constexpr std::byte kGuard{0xA5};

// `count` elements, `offset` elements past an aligned address, guarded on both sides and poisoned.
template <class T>
class Buffer {
 public:
  Buffer(std::size_t count, std::size_t offset)
      : bytes_(2 * kGuardBytes + (count + offset) * sizeof(T), kGuard),
        begin_(kGuardBytes + offset * sizeof(T)),
        span_(reinterpret_cast<T*>(bytes_.data() + begin_), count) {}
  Buffer(const Buffer&) = delete;
  std::span<T> span() const { return span_; }
  bool guards_intact() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(bytes_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(span_.size_bytes()), bytes_.end(), is_guard);
  }

 private:
  static constexpr std::size_t kGuardBytes = 64;
  std::vector<std::byte> bytes_;
  std::size_t begin_;
  std::span<T> span_;
};

template <class T>
class TypedJob : public Job {
 public:
  TypedJob(const Step& step, rondo::Communicator& comm)
      : step_(step),
        me_(comm.rank()),
        input_(input_of<T>(step, me_, send_count(step, me_))),
        expected_(expected<T>(step, me_)) {
    // In place, one buffer holds both: the one is a block of the other.
    const std::size_t in = input_.size(), out = expected_.size();
    const bool window = step.style == Style::window;
    const std::size_t one = step.in_place ? std::max(in, out) : out;
    if (window) {
      window_ = comm.allocate<T>(longest(step));
      recv_ = window_.span().first(one);
    } else {
      recv_buffer_.emplace(one, step.offset);
      recv_ = recv_buffer_->span();
    }
    if (step.in_place) {
      const std::size_t mine = to_size(me_) * step.count;
      if (in > 0) send_ = in < out ? recv_.subspan(mine, in) : recv_.first(in);
      if (out < in) recv_ = out > 0 ? recv_.subspan(mine, out) : std::span<T>();
    } else {
      send_buffer_.emplace(in, step.offset);
      send_ = send_buffer_->span();
    }
    if (in > 0) std::copy(input_.begin(), input_.end(), send_.begin());
    op_ = step.op.kind() == rondo::ReduceOp::premultiplied_sum ? rondo::ReduceOp::premul_sum(factor_of(me_, step.dtype))
                                                               : step.op;
  }

  void start(rondo::Communicator& comm) override {
    if (is_idle()) return;
    if (step_.style == Style::async) {
      auto async = comm.async();
      work_ = call(async);
    } else if (step_.style == Style::untyped) {
      call_untyped(comm);
    } else {
      call(comm);
    }
  }
  void record(rondo::Group& group) override {
    if (!is_idle()) call(group);
  }

  void verify(rondo::Communicator& comm) override {
    if (is_idle()) return;
    if (step_.style == Style::async) {
      work_.wait();
      if (!work_.done() || work_.error()) throw std::runtime_error("a Work that was waited for is not done");
    }
    if (step_.rough) {
      agree(comm);
    } else if (!same_bytes(recv_, expected_)) {
      throw std::runtime_error(difference());
    }
    if (!step_.in_place && !same_bytes(send_, input_)) throw std::runtime_error("the send buffer was changed");
    if ((recv_buffer_ && !recv_buffer_->guards_intact()) || (send_buffer_ && !send_buffer_->guards_intact())) {
      throw std::runtime_error("bytes beside a buffer were changed");
    }
  }

 private:
  int receiver() const { return (step_.root + step_.shift) % step_.size; }
  bool is_idle() const {  // a send concerns two ranks
    return step_.collective == rondo::Collective::send && me_ != step_.root && me_ != receiver();
  }
  static std::size_t longest(const Step& step) {
    std::size_t most = 0;
    for (int rank = 0; rank < step.size; ++rank) most = std::max(most, send_count(step, rank));
    return std::max(most, step.count * to_size(step.size)) + sum(step.parts);
  }
  static bool same_bytes(std::span<T> a, const std::vector<T>& b) {
    return a.size() == b.size() && (b.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
  }

  std::string difference() const {
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      if (std::memcmp(&recv_[i], &expected_[i], sizeof(T)) != 0) {
        return "element " + std::to_string(i) + " is " + std::to_string(to_double(recv_[i])) + " and not " +
               std::to_string(to_double(expected_[i]));
      }
    }
    return "the buffer has " + std::to_string(recv_.size()) + " elements";
  }

  // Rough values: near the reference, and the same bits on every rank.
  void agree(rondo::Communicator& comm) {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < recv_.size(); ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &recv_[i], sizeof(T));
      hash = mix(hash ^ bits);
      const double tolerance = sizeof(T) == 1 ? 2.0 : sizeof(T) == 2 ? 0.1 : 1e-5;
      if (!(std::abs(to_double(recv_[i]) - to_double(expected_[i])) <= tolerance)) {
        throw std::runtime_error(difference());
      }
    }
    std::vector<std::uint64_t> hashes(to_size(step_.size));
    comm.all_gather(std::span<const std::uint64_t>(&hash, 1), std::span<std::uint64_t>(hashes));
    if (std::any_of(hashes.begin(), hashes.end(), [&](std::uint64_t other) { return other != hashes[0]; })) {
      throw std::runtime_error("ranks got different bits");
    }
  }

  template <class Verbs>
  auto call(Verbs& verbs) {
    using enum rondo::Collective;
    const std::span<const T> from = send_;
    const std::span<T> to = recv_;
    const std::span<const std::size_t> parts = step_.parts;
    const int root = step_.root;
    switch (step_.collective) {
      case all_reduce:
        return step_.in_place ? verbs.all_reduce(to, op_) : verbs.all_reduce(from, to, op_);
      case reduce:
        return verbs.reduce(from, to, op_, root);
      case broadcast:
        return verbs.broadcast(to, root);
      case all_gather:
        return verbs.all_gather(from, to);
      case reduce_scatter:
        return verbs.reduce_scatter(from, to, op_);
      case all_to_all:
        return verbs.all_to_all(from, to);
      case gather:
        return verbs.gather(from, to, root);
      case scatter:
        return verbs.scatter(from, to, root);
      case all_gather_v:
        return verbs.all_gather_v(from, to, parts);
      case gather_v:
        return verbs.gather_v(from, to, parts, root);
      case scatter_v:
        return verbs.scatter_v(from, to, parts, root);
      case all_to_all_v:
        fill_counts();
        return verbs.all_to_all_v(from, std::span<const std::size_t>(send_counts_), to,
                                  std::span<const std::size_t>(recv_counts_));
      case send:
        return me_ == root ? verbs.send(from, receiver()) : verbs.recv(to, root);
      case recv:
        verbs.send(from, (me_ + step_.shift) % step_.size);
        return verbs.recv(to, (me_ + step_.size - step_.shift) % step_.size);
      case barrier:
        break;
    }
    return verbs.barrier();
  }

  void call_untyped(rondo::Communicator& comm) {
    using enum rondo::Collective;
    const void* from = send_.data();
    void* to = recv_.data();
    const auto& s = step_;
    switch (s.collective) {
      case all_reduce:
        return comm.all_reduce(from, to, s.count, s.dtype, op_);
      case reduce:
        return comm.reduce(from, to, s.count, s.dtype, op_, s.root);
      case broadcast:
        return comm.broadcast(from, to, s.count, s.dtype, s.root);
      case all_gather:
        return comm.all_gather(from, to, s.count, s.dtype);
      case reduce_scatter:
        return comm.reduce_scatter(from, to, s.count, s.dtype, op_);
      case all_to_all:
        return comm.all_to_all(from, to, s.count, s.dtype);
      case gather:
        return comm.gather(from, to, s.count, s.dtype, s.root);
      case scatter:
        return comm.scatter(from, to, s.count, s.dtype, s.root);
      case all_gather_v:
        return comm.all_gather_v(from, to, s.parts, s.dtype);
      case gather_v:
        return comm.gather_v(from, to, s.parts, s.dtype, s.root);
      case scatter_v:
        return comm.scatter_v(from, to, s.parts, s.dtype, s.root);
      case all_to_all_v:
        fill_counts();
        return comm.all_to_all_v(from, send_counts_, to, recv_counts_, s.dtype);
      case send:
        return me_ == s.root ? comm.send(from, s.count, s.dtype, receiver()) : comm.recv(to, s.count, s.dtype, s.root);
      default:
        return comm.barrier();
    }
  }

  void fill_counts() {
    for (int rank = 0; rank < step_.size; ++rank) {
      send_counts_.push_back(part(step_, me_, rank));
      recv_counts_.push_back(part(step_, rank, me_));
    }
  }

  Step step_;
  int me_;
  std::vector<T> input_, expected_;
  std::optional<Buffer<T>> send_buffer_, recv_buffer_;
  rondo::Window<T> window_;
  std::span<T> send_, recv_;
  std::vector<std::size_t> send_counts_, recv_counts_;
  rondo::ReduceOp op_ = rondo::ReduceOp::sum;
  rondo::Work work_;
};

std::unique_ptr<Job> make_job(const Step& step, rondo::Communicator& comm);

}  // namespace consumer
