// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp_link.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <rondo/error.hpp>

#include "comm/base/system_call.hpp"
#include "comm/transport/holding_link.hpp"
#include "comm/transport/lost_peer.hpp"
#include "comm/transport/sockets.hpp"

namespace rondo::comm {
namespace {

// Acknowledgements. A read that empties a socket's queue sends one before it returns: 2 of the 6 us of a short message
// that nothing is sent back for. So two bytes, the tail, follow a short step that nothing was received since the last:
// its reader leaves them in the queue until the next step, and acknowledges while it waits, and only when much is owed.
// The kernel would not wait so long if it took segments for small (its estimate rcv_mss, which a large one raises and
// two of equal length lower): a connection begins with a step to be skipped, odd steps are a byte longer, and with a
// tail of two no step with one is as long as its neighbour without (of one: scatter of 1 KiB 4.7 us instead of 3.5,
// once such two had met).
constexpr std::uint64_t kTailFollows = std::uint64_t{1} << 63;  // these two in the `bytes` of a header on its way
constexpr std::uint64_t kToBeSkipped = std::uint64_t{1} << 62;
constexpr std::size_t kOwedBytes = 32 << 10, kOwedSteps = 8;  // a congestion window begins with ten segments
constexpr std::size_t kFirstBytes = 60 << 10;                 // of the step to be skipped
constexpr std::size_t kTailBytes = 2;
constexpr int kLooks = 32;  // before a reader that waits acknowledges all the same
constexpr std::array<std::byte, kFirstBytes> kZeros{};
std::size_t lead_of(std::uint64_t step) { return step % 2; }  // bytes before its header

// Up to here a step's bytes are copied next to its header, or received there: that costs less than a vector costs the
// kernel.
constexpr std::size_t kSentPacked = 4 << 10, kReceivedPacked = 8 << 10;

// A header and a step's bytes, next to each other and the bytes aligned; a lead and a tail fit in front.
class Packed {
 public:
  std::byte* begin() { return bytes() - sizeof(StepHeader); }
  StepHeader& header() { return *reinterpret_cast<StepHeader*>(begin()); }
  std::byte* bytes() { return lines_[1].bytes.data(); }
  void reserve(std::size_t bytes) {  // moves what is here
    const std::size_t lines = 2 + bytes / sizeof(Line);
    if (lines_.size() < lines) lines_.resize(lines);
  }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> lines_{2 + kReceivedPacked / sizeof(Line)};
};

// One write of 4 MiB takes the kernel less time than eight of 512 KiB; a socket's buffer holds no more.
constexpr std::size_t kWriteBytes = 4 << 20;
constexpr std::size_t kLongestStep = 512 << 10;

// Of a system call.
bool would_block(long result) { return result == -EAGAIN || result == -EWOULDBLOCK || result == -EINTR; }

// What the two links to a peer share.
struct Connection {
  Fd socket;
  bool on_host;          // elsewhere a tail might still be on its way when its reader closes, which resets a connection
  bool answered = true;  // a step has come since the last one was sent
};

// Right before the header.
struct Lead {
  std::array<std::byte, 8> lead{};  // as many of its last bytes as the step begins with
};
struct TcpStep : Lead, HeldStep {
  bool tailed() const { return (header.bytes & kTailFollows) != 0; }
  std::size_t length() const { return lead_of(header.step) + sizeof header + bytes + (tailed() ? kTailBytes : 0); }
};

class TcpSendLink final : public HoldingSendLink<TcpSendLink, TcpStep> {
 public:
  TcpSendLink(std::shared_ptr<Connection> connection, int peer, FifoShape shape)
      : HoldingSendLink(shape, kWriteBytes, connection->on_host ? 1 : 0),
        connection_(std::move(connection)),
        peer_(peer) {
    if (connection_->on_host) hold({}, kZeros.data(), kFirstBytes, false).header.bytes |= kToBeSkipped;
  }

  Wake wake() const override { return {Wake::By::descriptor, connection_->socket.get(), POLLOUT}; }

 private:
  friend HoldingSendLink;

  void amend(TcpStep& step) {
    if (connection_->on_host && !connection_->answered && queued() == 1 && step.bytes <= kOwedBytes)
      step.header.bytes |= kTailFollows;
    connection_->answered = false;
  }
  void pump() {
    while (queued() != 0) {
      const bool alone = queued() == 1 && offset_ == 0 && front().bytes <= kSentPacked;
      const long sent = alone ? send_packed(front()) : send_parts();
      if (would_block(sent)) return;
      if (sent < 0) throw_lost(peer_, static_cast<int>(-sent));
      advance(static_cast<std::size_t>(sent));
    }
  }
  long send_packed(const TcpStep& step) {
    packed_.header() = step.header;
    if (step.bytes != 0) std::memcpy(packed_.bytes(), step.data, step.bytes);
    return system_call(SYS_sendto, ::send, connection_->socket.get(), packed_.begin() - lead_of(step.header.step),
                       step.length(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  long send_parts() {
    std::array<iovec, 2 * kMostHeldSteps + 1> parts;
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = gather(parts);
    return system_call(SYS_sendmsg, ::sendmsg, connection_->socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  std::size_t gather(std::span<iovec> parts) {
    std::size_t used = 0, skip = offset_;
    const auto add = [&](const void* base, std::size_t length) {
      const std::size_t cut = std::min(skip, length);
      skip -= cut;
      // writev does not write through iov_base.
      if (length > cut)
        parts[used++] = {const_cast<std::byte*>(static_cast<const std::byte*>(base)) + cut, length - cut};
    };
    visit([&](const TcpStep& step) {
      if (used + 3 > parts.size()) return false;
      const std::size_t lead = lead_of(step.header.step);
      add(reinterpret_cast<const std::byte*>(&step.header) - lead, lead + sizeof step.header);
      add(step.data, step.bytes);
      if (step.tailed()) add(kZeros.data(), kTailBytes);
      return true;
    });
    return used;
  }
  void advance(std::size_t bytes) {
    offset_ += bytes;
    while (queued() != 0) {
      const std::size_t whole = front().length();
      if (offset_ < whole) return;
      offset_ -= whole;
      drop_front();
    }
  }

  std::shared_ptr<Connection> connection_;
  int peer_;
  Packed packed_;
  std::size_t offset_ = 0;  // bytes of front() that the kernel has taken
};

class TcpRecvLink final : public RecvLink {
 public:
  TcpRecvLink(std::shared_ptr<Connection> connection, int peer, FifoShape shape)
      : connection_(std::move(connection)), peer_(peer), shape_(shape) {}
  TcpRecvLink(const TcpRecvLink&) = delete;
  TcpRecvLink& operator=(const TcpRecvLink&) = delete;
  // To close a socket with something in it resets the connection.
  ~TcpRecvLink() override {
    if (std::array<std::byte, kTailBytes> tail; tail_waits()) read(tail.data(), tail.size());
  }

  const StepHeader* try_step(std::byte* direct, std::size_t bytes) override {
    if ((!opened_ || missing(bytes) > 0) && !read_on(direct, bytes)) return nullptr;
    return &packed_.header();
  }
  const std::byte* data() const override { return data_; }
  void release() override {
    ++owed_steps_;
    owed_bytes_ += packed_.header().bytes;
    if (!tailed_) owed_steps_ = owed_bytes_ = 0;  // whoever emptied the queue has acknowledged all
    next_step();
    connection_->answered = true;
  }
  Wake wake() const override { return {Wake::By::descriptor, socket(), POLLIN}; }

 private:
  static constexpr std::ptrdiff_t kHeader = sizeof(StepHeader);

  int socket() const { return connection_->socket.get(); }
  std::ptrdiff_t lead() const { return static_cast<std::ptrdiff_t>(lead_of(step_)); }
  bool tail_waits() const { return at_ < -lead(); }
  bool has_header() const { return at_ >= kHeader; }
  std::ptrdiff_t missing(std::size_t bytes) const { return kHeader + static_cast<std::ptrdiff_t>(bytes) - at_; }
  void next_step() {
    ++step_;
    at_ = -lead() - (tailed_ ? static_cast<std::ptrdiff_t>(kTailBytes) : 0);
    tailed_ = false;
    looks_ = 0;
    data_ = nullptr;
  }

  // Reads header and exactly `bytes` more, never into the next step. False: not all here yet.
  bool read_on(std::byte* direct, std::size_t bytes) {
    if (!opened_ && !open()) return false;
    if (data_ == nullptr || asked_ != bytes) data_ = place(direct, bytes);
    asked_ = bytes;
    if (tail_waits() && may_owe() && !more_than_tail()) return false;
    while (missing(bytes) > 0) {
      // A step of other length comes from a rank that called something else; its header says what.
      if (has_header() && packed_.header().bytes != bytes) return true;
      const bool at_tail = tail_waits(), had_header = has_header();
      if (!moved(receive(static_cast<std::size_t>(missing(bytes))))) return false;
      if (!had_header && has_header()) note_tail();
      if (at_tail && at_ == -lead()) {  // it was all there was
        acknowledge();
        return false;
      }
    }
    return true;
  }
  // The first step's header is read alone: it may be a step to be skipped.
  bool open() {
    while (!has_header()) {
      if (!moved(read(packed_.begin() + at_, static_cast<std::size_t>(kHeader - at_)))) return false;
    }
    if ((packed_.header().bytes & kToBeSkipped) != 0) {
      while (const std::ptrdiff_t rest = missing(kFirstBytes)) {
        if (!moved(read(nullptr, static_cast<std::size_t>(rest), MSG_TRUNC))) return false;
      }
      next_step();
    } else {
      note_tail();
    }
    return opened_ = true;
  }
  // What a read has returned; false: nothing is here.
  bool moved(long received) {
    if (received == 0) throw_lost(peer_, 0);
    if (received < 0 && !would_block(received)) throw_lost(peer_, static_cast<int>(-received));
    if (received > 0) at_ += received;
    return received > 0;
  }
  void note_tail() {
    tailed_ = (packed_.header().bytes & kTailFollows) != 0;
    packed_.header().bytes &= ~kTailFollows;
  }
  bool may_owe() { return owed_steps_ < kOwedSteps && owed_bytes_ < kOwedBytes && looks_++ < kLooks; }
  bool more_than_tail() const {
    int here = 0;
    return system_call(SYS_ioctl, ::ioctl, socket(), FIONREAD, &here) != 0 || here > static_cast<int>(kTailBytes);
  }
  void acknowledge() {
    const int now = 1;
    system_call(SYS_setsockopt, ::setsockopt, socket(), IPPROTO_TCP, TCP_QUICKACK, &now, sizeof now);
    owed_steps_ = owed_bytes_ = 0;
  }
  std::byte* place(std::byte* direct, std::size_t bytes) {
    if (bytes > kReceivedPacked && direct != nullptr) return direct;
    packed_.reserve(bytes);
    return packed_.bytes();
  }
  long receive(std::size_t missing) {
    std::byte* const next = packed_.begin() + at_;
    if (data_ == packed_.bytes()) return read(next, missing);
    if (has_header()) return read(data_ + (at_ - kHeader), missing);
    const auto before = static_cast<std::size_t>(kHeader - at_);
    std::array<iovec, 2> parts{{{next, before}, {data_, missing - before}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return system_call(SYS_recvmsg, ::recvmsg, socket(), &message, MSG_DONTWAIT);
  }
  long read(std::byte* into, std::size_t bytes, int flags = 0) const {
    return system_call(SYS_recvfrom, ::recv, socket(), into, bytes, MSG_DONTWAIT | flags);
  }

  std::shared_ptr<Connection> connection_;
  int peer_;
  FifoShape shape_;
  Packed packed_;  // the header, and the bytes of a step that is short or has no other place
  std::byte* data_ = nullptr;
  std::size_t asked_ = 0;  // bytes, by who wants the step
  bool opened_ = false;    // the first step's header is known
  bool tailed_ = false;    // a tail follows this step
  std::uint64_t step_ = 0;
  std::ptrdiff_t at_ = 0;  // bytes read of this step, from its header; negative: of what comes before
  int looks_ = 0;
  std::size_t owed_steps_ = 0, owed_bytes_ = 0;  // received and not acknowledged, as far as we know
};

}  // namespace

Links make_tcp_links(Fd socket, int peer, FifoShape shape) {
  const bool on_host = stays_on_host(socket.get());
  auto shared = std::make_shared<Connection>(Connection{.socket = std::move(socket), .on_host = on_host});
  return {.send = std::make_unique<TcpSendLink>(shared, peer, shape),
          .recv = std::make_unique<TcpRecvLink>(shared, peer, shape),
          .longest_step = std::max<std::size_t>(shape.slice_bytes, kLongestStep)};
}

}  // namespace rondo::comm
