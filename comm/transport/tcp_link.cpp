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
#include <span>
#include <vector>

#include <rondo/error.hpp>

namespace rondo::comm {
namespace {

[[noreturn]] void throw_lost(int peer, int error) {
  throw Error(ErrorCode::peer_lost,
              error == 0 ? fmt::format("rank {} closed its connection", peer)
                         : fmt::format("rank {} is gone or out of reach: {}", peer, std::strerror(error)),
              peer);
}
// Up to here a step's bytes are copied next to its header: that costs less than a vector costs the kernel.
constexpr std::size_t kShortBytes = 1024;

// A header and a short step's bytes, next to each other and the bytes aligned.
struct Packed {
  alignas(64) std::array<std::byte, 64 + kShortBytes> memory;
  std::byte* begin() { return memory.data() + 64 - sizeof(StepHeader); }
  StepHeader& header() { return *reinterpret_cast<StepHeader*>(begin()); }
  std::byte* bytes() { return memory.data() + 64; }
};

// One write of 4 MiB takes the kernel less time than eight of 512 KiB; a socket's buffer holds no more.
constexpr std::size_t kWriteBytes = 4 << 20, kMostSteps = 64;
std::size_t steps_of_a_write(FifoShape shape) {
  return std::clamp<std::size_t>(kWriteBytes / shape.slice_bytes, shape.slots, kMostSteps);
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Steps are queued as {header, bytes}; bytes lie in the caller's memory or in one of shape.slots slots of our own.
class TcpSendLink final : public SendLink {
 public:
  TcpSendLink(std::shared_ptr<const Fd> socket, int peer, FifoShape shape)
      : socket_(std::move(socket)), peer_(peer), shape_(shape), queue_(steps_of_a_write(shape)) {}

  bool ready() override {
    if (has_room()) return true;
    pump();
    return has_room();
  }
  std::byte* slot() override {
    if (slots_.empty()) slots_.resize(shape_.slots * shape_.slice_bytes);
    return slots_.data() + (slot_ % shape_.slots) * shape_.slice_bytes;
  }
  void publish(const Signature& signature, std::size_t bytes) override {
    post(signature, slot(), bytes, true);
    ++slot_;
    ++built_;
  }
  void send(const Signature& signature, const std::byte* data, std::size_t bytes) override {
    post(signature, data, bytes, false);
  }
  bool refers_to(const std::byte* data, std::size_t bytes) const override {
    for (std::uint64_t step = written_; step != posted_; ++step) {
      const Entry& entry = queue_[step % queue_.size()];
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
    bool built = false;  // in a slot
  };
  std::uint64_t queued() const { return posted_ - written_; }
  bool has_room() const { return queued() < queue_.size() && built_ < shape_.slots; }
  Entry& front() { return queue_[written_ % queue_.size()]; }
  void post(const Signature& signature, const std::byte* data, std::size_t bytes, bool built) {
    queue_[posted_ % queue_.size()] = {{.signature = signature, .step = posted_, .bytes = bytes}, data, built};
    ++posted_;
  }

  void pump() {
    while (queued() != 0) {
      const bool alone = queued() == 1 && offset_ == 0 && front().header.bytes <= kShortBytes;
      const ssize_t sent = alone ? send_packed(front()) : send_parts();
      if (sent < 0) {
        if (would_block()) return;
        throw_lost(peer_, errno);
      }
      advance(static_cast<std::size_t>(sent));
    }
  }
  ssize_t send_packed(const Entry& entry) {
    Packed packed;
    packed.header() = entry.header;
    if (entry.header.bytes != 0) std::memcpy(packed.bytes(), entry.data, entry.header.bytes);
    return ::send(socket_->get(), packed.begin(), sizeof entry.header + entry.header.bytes,
                  MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ssize_t send_parts() {
    std::array<iovec, 2 * kMostSteps> parts;
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = gather(parts);
    return ::sendmsg(socket_->get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
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
    for (std::uint64_t step = written_; step != posted_ && used + 2 <= parts.size(); ++step) {
      Entry& entry = queue_[step % queue_.size()];
      add(&entry.header, sizeof entry.header);
      add(entry.data, entry.header.bytes);
    }
    return used;
  }
  void advance(std::size_t bytes) {
    offset_ += bytes;
    while (queued() != 0) {
      const std::size_t whole = sizeof(StepHeader) + front().header.bytes;
      if (offset_ < whole) return;
      offset_ -= whole;
      if (front().built) --built_;
      ++written_;
    }
  }

  std::shared_ptr<const Fd> socket_;
  int peer_;
  FifoShape shape_;
  std::vector<Entry> queue_;
  std::vector<std::byte> slots_;
  std::uint64_t posted_ = 0, written_ = 0;
  std::uint64_t slot_ = 0, built_ = 0;  // the next slot's number; queued steps that lie in slots
  std::size_t offset_ = 0;              // bytes of step written_ that the kernel has taken
};

class TcpRecvLink final : public RecvLink {
 public:
  TcpRecvLink(std::shared_ptr<const Fd> socket, int peer, FifoShape shape)
      : socket_(std::move(socket)), peer_(peer), shape_(shape) {}

  const StepHeader* try_step(std::byte* direct, std::size_t bytes) override {
    if (got_ < sizeof(StepHeader) + bytes && !read_on(direct, bytes)) return nullptr;
    return &packed_.header();
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
    if (data_ == nullptr) data_ = place(direct, bytes);
    while (got_ < sizeof(StepHeader) + bytes) {
      const ssize_t received = receive(sizeof(StepHeader) + bytes - got_);
      if (received == 0) throw_lost(peer_, 0);
      if (received < 0) {
        if (would_block()) return false;
        throw_lost(peer_, errno);
      }
      got_ += static_cast<std::size_t>(received);
      // A step of other length comes from a rank that called something else; its header says what.
      if (got_ >= sizeof(StepHeader) && packed_.header().bytes != bytes) return true;
    }
    return true;
  }
  std::byte* place(std::byte* direct, std::size_t bytes) {
    if (bytes <= kShortBytes) return packed_.bytes();
    if (direct != nullptr) return direct;
    if (staging_.empty()) staging_.resize(shape_.slice_bytes);
    return staging_.data();
  }
  ssize_t receive(std::size_t missing) {
    if (data_ == packed_.bytes()) return ::recv(socket_->get(), packed_.begin() + got_, missing, MSG_DONTWAIT);
    if (got_ >= sizeof(StepHeader)) {
      return ::recv(socket_->get(), data_ + (got_ - sizeof(StepHeader)), missing, MSG_DONTWAIT);
    }
    const std::size_t of_header = sizeof(StepHeader) - got_;
    std::array<iovec, 2> parts{{{packed_.begin() + got_, of_header}, {data_, missing - of_header}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return ::recvmsg(socket_->get(), &message, MSG_DONTWAIT);
  }

  std::shared_ptr<const Fd> socket_;
  int peer_;
  FifoShape shape_;
  Packed packed_;  // the header, and the bytes of a short step
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
