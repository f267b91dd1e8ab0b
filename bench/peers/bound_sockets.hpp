// SPDX-License-Identifier: Apache-2.0
// The bound over TCP: a connection for each pair of ranks, one message for each pair that needs one, no headers. Two
// ranks send and receive at once; more meet at rank 0, whose 2 (np - 1) messages are the fewest.
// Behind a short message that goes one way go a few bytes more, which the receiver leaves for its next call: who
// empties a socket's queue sends an acknowledgement before recv() returns (2 us of 6.5 here). As many do not follow
// each other: after two segments of one length the kernel takes it for the other side's largest, and acknowledges each.
#pragma once
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "bound.hpp"

namespace rondo::peers {

class BoundSockets : public Library {
 public:
  using Pairs = std::vector<std::vector<int>>;  // [rank][other]: the rank's end

  // Before the ranks are forked.
  static Pairs create(int np) {
    Pairs ends(static_cast<std::size_t>(np), std::vector<int>(static_cast<std::size_t>(np), -1));
    for (std::size_t a = 0; a < ends.size(); ++a) {
      for (std::size_t b = a + 1; b < ends.size(); ++b) connect(ends[a][b], ends[b][a]);
    }
    return ends;
  }

  BoundSockets(const Pairs& ends, int rank, int np, bool has_core)
      : ends_(ends[static_cast<std::size_t>(rank)]),
        rank_(rank),
        np_(np),
        cores_(rank, np, has_core),
        stages_(ends.size()) {
    for (std::size_t other = 0; other < ends.size(); ++other) {
      for (int end : ends[other]) {
        if (end >= 0 && other != static_cast<std::size_t>(rank)) ::close(end);
      }
    }
  }

  void prepare(const Cell& cell, float* in, float* out) override {
    cell_ = cell, in_ = in, out_ = out, block_ = cell.block(), count_ = cell.count;
    if (cell.reduces()) work_ = pages(count_ * static_cast<std::size_t>(np_ - 1));
  }
  const float* result() override { return out_; }

  void run() override {
    switch (cell_.collective) {
      case Collective::all_reduce:
        return np_ == 2 ? swap(in_, out_, count_), add(out_, out_, in_, count_) : (sum_at_root(out_), from_root(out_));
      case Collective::reduce_scatter:
        return reduce_scatter();
      case Collective::all_gather:
        std::memcpy(out_ + own(), in_, block_ * 4);
        return np_ == 2 ? swap(in_, out_ + at(1 - rank_), block_) : (blocks_to_root(), from_root(out_));
      case Collective::barrier:
        return np_ == 2 ? swap(&token_, &token_, 1) : (token_to_root(), from_root(&token_));
      case Collective::all_to_all:
        return all_to_all();
      case Collective::broadcast:
        return from_root(out_);
      case Collective::reduce:
        return sum_at_root(out_);
      case Collective::gather:
        if (rank_ == 0) std::memcpy(out_, in_, block_ * 4);
        return blocks_to_root();
      case Collective::scatter:
        if (rank_ == 0) std::memcpy(out_, in_, block_ * 4);
        return blocks_from_root(in_);
    }
  }

 private:
  static constexpr std::size_t kShort = 8 << 10;  // bytes of a message
  // The two directions of one connection in a call. A short message goes through `stage`.
  struct Transfer {
    int end;
    const char* from = nullptr;
    std::size_t to_send = 0;
    char* into = nullptr;
    std::size_t to_receive = 0;
    const char* staged = nullptr;  // what has come, if not in place
    char* place = nullptr;
    std::size_t bytes = 0;
  };
  static constexpr std::size_t kTails = 4;
  struct Stage {
    char sent[kShort + kTails], received[kShort + 2 * kTails];
    std::size_t sends = 0, receives = 0;  // with a tail
    std::size_t left = 0;                 // bytes of the last message
  };
  static std::size_t tail(std::size_t number) { return 1 + number % kTails; }

  static void connect(int& one, int& other) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* name = reinterpret_cast<sockaddr*>(&address);
    one = ::socket(AF_INET, SOCK_STREAM, 0);
    // Before they connect: there is no wire to share, and a connection that began with BBR is paced for ever.
    for (int end : {listener, one}) ::setsockopt(end, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    if (::bind(listener, name, length) != 0 || ::getsockname(listener, name, &length) != 0 ||
        ::listen(listener, 1) != 0 || ::connect(one, name, length) != 0 ||
        (other = ::accept(listener, nullptr, nullptr)) < 0) {
      std::perror("connect");
      std::exit(2);
    }
    ::close(listener);
    const int yes = 1;
    for (int end : {one, other}) ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }

  std::size_t at(int rank) const { return static_cast<std::size_t>(rank) * block_; }
  std::size_t own() const { return at(rank_); }

  void start(int other, const float* from, std::size_t sent, float* into, std::size_t received) {
    Stage& stage = stages_[static_cast<std::size_t>(other)];
    Transfer one{.end = ends_[static_cast<std::size_t>(other)]};
    one.from = reinterpret_cast<const char*>(from), one.to_send = sent * 4;
    const bool one_way = sent == 0 || received == 0;
    if (one_way && sent > 0 && one.to_send <= kShort) {
      std::memcpy(stage.sent, from, one.to_send);
      one.from = stage.sent, one.to_send += tail(stage.sends++);
    }
    if (received > 0)
      expect(one, stage, reinterpret_cast<char*>(into), received * 4, one_way && received * 4 <= kShort);
    moving_.push_back(one);
  }
  void expect(Transfer& one, Stage& stage, char* into, std::size_t bytes, bool has_tail) {
    one.into = into, one.to_receive = bytes;
    if (has_tail || (stage.left > 0 && bytes <= kShort)) {
      one.into = stage.received, one.staged = stage.received + stage.left;
      one.to_receive += stage.left;
      one.place = into, one.bytes = bytes;
    } else if (stage.left > 0) {
      check(system_call(SYS_recvfrom, ::recv, one.end, stage.received, stage.left, MSG_WAITALL));
    }
    stage.left = has_tail ? tail(stage.receives++) : 0;
  }
  void finish() {
    cores_.until([&] {
      bool all = true;
      for (Transfer& one : moving_) all &= advance(one);
      return all;
    });
    for (const Transfer& one : moving_) {
      if (one.staged != nullptr) std::memcpy(one.place, one.staged, one.bytes);
    }
    moving_.clear();
  }
  static bool advance(Transfer& one) {
    if (one.to_send > 0) {
      const long sent = system_call(SYS_sendto, ::send, one.end, one.from, one.to_send, MSG_DONTWAIT | MSG_NOSIGNAL);
      check(sent);
      if (sent > 0) one.from += sent, one.to_send -= static_cast<std::size_t>(sent);
    }
    if (one.to_receive > 0) {
      const long received = system_call(SYS_recvfrom, ::recv, one.end, one.into, one.to_receive, MSG_DONTWAIT);
      check(received);
      if (received > 0) one.into += received, one.to_receive -= static_cast<std::size_t>(received);
    }
    return one.to_send + one.to_receive == 0;
  }
  static void check(long moved) {
    if (moved > 0 || moved == -EAGAIN) return;
    std::fprintf(stderr, "socket: %s\n", moved == 0 ? "closed" : std::strerror(static_cast<int>(-moved)));
    std::_Exit(3);
  }

  void swap(const float* from, float* into, std::size_t count) {
    start(1 - rank_, from, count, into, count);
    finish();
  }
  void from_root(float* whole) {
    for (int other = 1; other < np_ && rank_ == 0; ++other) start(other, whole, cells(), nullptr, 0);
    if (rank_ != 0) start(0, nullptr, 0, whole, cells());
    finish();
  }
  std::size_t cells() const { return cell_.is(Collective::barrier) ? 1 : count_; }
  void blocks_from_root(const float* whole) {
    for (int other = 1; other < np_ && rank_ == 0; ++other) start(other, whole + at(other), block_, nullptr, 0);
    if (rank_ != 0) start(0, nullptr, 0, out_, block_);
    finish();
  }
  void blocks_to_root() {
    for (int other = 1; other < np_ && rank_ == 0; ++other) start(other, nullptr, 0, out_ + at(other), block_);
    if (rank_ != 0) start(0, in_, block_, nullptr, 0);
    finish();
  }
  void token_to_root() {
    for (int other = 1; other < np_ && rank_ == 0; ++other) start(other, nullptr, 0, &token_, 1);
    if (rank_ != 0) start(0, &token_, 1, nullptr, 0);
    finish();
  }
  void sum_at_root(float* sum) {
    if (rank_ != 0) {
      start(0, in_, count_, nullptr, 0);
      return finish();
    }
    const auto others = static_cast<std::size_t>(np_ - 1);
    for (std::size_t i = 0; i < others; ++i)
      start(static_cast<int>(i) + 1, nullptr, 0, work_.get() + i * count_, count_);
    finish();
    for (std::size_t i = 0; i < others; ++i) add(sum, i == 0 ? in_ : sum, work_.get() + i * count_, count_);
  }
  void reduce_scatter() {
    if (np_ == 2) {
      start(1 - rank_, in_ + at(1 - rank_), block_, out_, block_);
      finish();
      return add(out_, out_, in_ + own(), block_);
    }
    sum_at_root(work_.get());
    if (rank_ == 0) std::memcpy(out_, work_.get(), block_ * 4);
    blocks_from_root(work_.get());
  }
  void all_to_all() {
    std::memcpy(out_ + own(), in_ + own(), block_ * 4);
    for (int turn = 1; turn < np_; ++turn) {
      const int other = (rank_ + turn) % np_;
      start(other, in_ + at(other), block_, out_ + at(other), block_);
    }
    finish();
  }

  std::vector<int> ends_;
  int rank_, np_;
  Cores cores_;
  Cell cell_;
  float *in_ = nullptr, *out_ = nullptr;
  std::size_t block_ = 0, count_ = 0;
  float token_ = 0;
  Memory work_;  // contributions that rank 0 receives
  std::vector<Stage> stages_;
  std::vector<Transfer> moving_;
};

}  // namespace rondo::peers
