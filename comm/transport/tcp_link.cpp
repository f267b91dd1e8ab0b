// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp_link.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include <rondo/error.hpp>

namespace rondo::comm {
namespace {

[[noreturn]] void throw_lost(int peer, int error) {
  throw Error(ErrorCode::peer_lost,
              error == 0 ? fmt::format("rank {} closed its connection", peer)
                         : fmt::format("the connection to rank {} broke: {}", peer, std::strerror(error)),
              peer);
}
bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Up to shape.slots steps are queued as {header, bytes}; bytes lie in the caller's memory or in a slot of our own.
class TcpSendLink final : public SendLink {
 public:
  TcpSendLink(std::shared_ptr<const Fd> socket, int peer, FifoShape shape)
      : socket_(std::move(socket)), peer_(peer), shape_(shape), queue_(shape.slots) {}

  bool ready() override {
    if (queued() < shape_.slots) return true;
    pump();
    return queued() < shape_.slots;
  }
  std::byte* slot() override {
    if (slots_.empty()) slots_.resize(shape_.slots * shape_.slice_bytes);
    return slots_.data() + (posted_ % shape_.slots) * shape_.slice_bytes;
  }
  void publish(const Signature& signature, std::size_t bytes) override { send(signature, slot(), bytes); }
  void send(const Signature& signature, const std::byte* data, std::size_t bytes) override {
    queue_[posted_ % shape_.slots] = {{.signature = signature, .step = posted_, .bytes = bytes}, data};
    ++posted_;
    pump();
  }
  bool refers_to(const std::byte* data, std::size_t bytes) const override {
    for (std::uint64_t step = written_; step != posted_; ++step) {
      const Entry& entry = queue_[step % shape_.slots];
      if (entry.data < data + bytes && data < entry.data + entry.header.bytes) return true;
    }
    return false;
  }
  bool flushed() override {
    if (queued() != 0) pump();
    return queued() == 0;
  }
  PollTarget poll_target() const override { return {socket_->get(), POLLOUT}; }

 private:
  struct Entry {
    StepHeader header;
    const std::byte* data = nullptr;
  };
  std::uint64_t queued() const { return posted_ - written_; }

  void pump() {
    while (queued() != 0) {
      std::array<iovec, 16> parts;
      const std::size_t used = gather(parts);
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = used;
      const ssize_t sent = ::sendmsg(socket_->get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) {
        if (would_block()) return;
        throw_lost(peer_, errno);
      }
      advance(static_cast<std::size_t>(sent));
    }
  }
  std::size_t gather(std::array<iovec, 16>& parts) {
    std::size_t used = 0, skip = offset_;
    const auto add = [&](const void* base, std::size_t length) {
      const std::size_t cut = std::min(skip, length);
      skip -= cut;
      // writev does not write through iov_base.
      if (length > cut)
        parts[used++] = {const_cast<std::byte*>(static_cast<const std::byte*>(base)) + cut, length - cut};
    };
    for (std::uint64_t step = written_; step != posted_ && used + 2 <= parts.size(); ++step) {
      Entry& entry = queue_[step % shape_.slots];
      add(&entry.header, sizeof entry.header);
      add(entry.data, entry.header.bytes);
    }
    return used;
  }
  void advance(std::size_t bytes) {
    offset_ += bytes;
    while (queued() != 0) {
      const std::size_t whole = sizeof(StepHeader) + queue_[written_ % shape_.slots].header.bytes;
      if (offset_ < whole) return;
      offset_ -= whole;
      ++written_;
    }
  }

  std::shared_ptr<const Fd> socket_;
  int peer_;
  FifoShape shape_;
  std::vector<Entry> queue_;
  std::vector<std::byte> slots_;
  std::uint64_t posted_ = 0, written_ = 0;
  std::size_t offset_ = 0;  // bytes of step written_ that the kernel has taken
};

class TcpRecvLink final : public RecvLink {
 public:
  TcpRecvLink(std::shared_ptr<const Fd> socket, int peer, FifoShape shape)
      : socket_(std::move(socket)), peer_(peer), shape_(shape) {}

  const StepHeader* try_step(std::byte* direct, std::size_t bytes) override {
    if (got_ < sizeof header_ + bytes && !read_on(direct, bytes)) return nullptr;
    return &header_;
  }
  const std::byte* data() const override { return data_; }
  void release() override {
    got_ = 0;
    data_ = nullptr;
  }
  PollTarget poll_target() const override { return {socket_->get(), POLLIN}; }

 private:
  // Reads header and exactly `bytes` more, never into the next step. False: not all here yet.
  bool read_on(std::byte* direct, std::size_t bytes) {
    if (data_ == nullptr) {
      if (direct == nullptr && staging_.empty()) staging_.resize(shape_.slice_bytes);
      data_ = direct != nullptr ? direct : staging_.data();
    }
    while (got_ < sizeof header_ + bytes) {
      const std::size_t in_header = std::min(got_, sizeof header_);
      std::array<iovec, 2> parts{{{reinterpret_cast<std::byte*>(&header_) + in_header, sizeof header_ - in_header},
                                  {data_ + (got_ - in_header), bytes - (got_ - in_header)}}};
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = parts.size();
      const ssize_t received = ::recvmsg(socket_->get(), &message, MSG_DONTWAIT);
      if (received == 0) throw_lost(peer_, 0);
      if (received < 0) {
        if (would_block()) return false;
        throw_lost(peer_, errno);
      }
      got_ += static_cast<std::size_t>(received);
      // A step of other length comes from a rank that called something else; its header says what.
      if (got_ >= sizeof header_ && header_.bytes != bytes) return true;
    }
    return true;
  }

  std::shared_ptr<const Fd> socket_;
  int peer_;
  FifoShape shape_;
  StepHeader header_;
  std::vector<std::byte> staging_;
  std::byte* data_ = nullptr;
  std::size_t got_ = 0;
};

}  // namespace

std::pair<std::unique_ptr<SendLink>, std::unique_ptr<RecvLink>> make_tcp_links(Fd socket, int peer, FifoShape shape) {
  auto shared = std::make_shared<const Fd>(std::move(socket));
  return {std::make_unique<TcpSendLink>(shared, peer, shape), std::make_unique<TcpRecvLink>(shared, peer, shape)};
}

}  // namespace rondo::comm
