// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/secure_link.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "comm/transport/holding_link.hpp"
#include "comm/transport/lost_peer.hpp"

namespace rondo::comm {
namespace {

// A record of TLS holds so many bytes: a step's header and what fits beside it are copied into one.
constexpr std::size_t kFirstRecordBytes = 16 << 10;
constexpr std::size_t kHeldBytes = 1 << 20;
constexpr std::size_t kLongestSecureStep = 512 << 10;
constexpr std::size_t kReceivedCopied = 8 << 10;  // as the plain link does

class SecureConnection {
 public:
  SecureConnection(SecuredSocket secured, int peer, Lane lane)
      : secured_(std::move(secured)), peer_(peer), name_(lane == Lane::messages ? "message" : "data") {}
  int socket() const { return secured_.socket.get(); }
  int peer() const { return peer_; }
  // What went or came; 0: nothing can now.
  std::size_t send(std::span<const std::byte> bytes) { return moved(secured_.stream->send(bytes)); }
  std::size_t recv(std::span<std::byte> into) {
    const long result = secured_.stream->recv(into);
    if (result == 0) throw_lost(peer_, 0);
    return moved(result);
  }
  bool flush() {
    const long result = secured_.stream->flush();
    moved(result);
    return result == 0;
  }

 private:
  std::size_t moved(long result) const {
    if (result == -EAGAIN || result == -EWOULDBLOCK) return 0;
    if (result == -EBADMSG) throw Error(ErrorCode::corrupt_message, changed_on_its_way(peer_, name_), peer_);
    if (result < 0) throw_lost(peer_, static_cast<int>(-result));
    return static_cast<std::size_t>(result);
  }

  SecuredSocket secured_;
  int peer_;
  const char* name_;
};

class SecureSendLink final : public HoldingSendLink<SecureSendLink> {
 public:
  SecureSendLink(std::shared_ptr<SecureConnection> connection, FifoShape shape)
      : HoldingSendLink(shape, kHeldBytes), connection_(std::move(connection)) {}

  bool flushed() override { return HoldingSendLink::flushed() && connection_->flush(); }
  Wake wake() const override { return {Wake::By::descriptor, connection_->socket(), POLLOUT}; }

 private:
  friend HoldingSendLink;

  void pump() {
    while (queued() != 0) {
      const HeldStep& step = front();
      const std::size_t sent = offset_ == 0 ? send_first(step) : send_rest(step);
      if (sent == 0) return;
      offset_ += sent;
      if (offset_ < sizeof step.header + step.bytes) continue;
      offset_ = 0;
      drop_front();
    }
  }
  std::size_t send_first(const HeldStep& step) {
    const std::size_t beside = std::min(kFirstRecordBytes - sizeof step.header, step.bytes);
    std::memcpy(first_.data(), &step.header, sizeof step.header);
    if (beside != 0) std::memcpy(first_.data() + sizeof step.header, step.data, beside);
    return connection_->send({first_.data(), sizeof step.header + beside});
  }
  std::size_t send_rest(const HeldStep& step) {
    const std::size_t done = offset_ - sizeof step.header;
    return connection_->send({step.data + done, step.bytes - done});
  }

  std::shared_ptr<SecureConnection> connection_;
  std::vector<std::byte> first_ = std::vector<std::byte>(kFirstRecordBytes);
  std::size_t offset_ = 0;  // bytes of front() that are encrypted
};

class SecureRecvLink final : public RecvLink {
 public:
  explicit SecureRecvLink(std::shared_ptr<SecureConnection> connection) : connection_(std::move(connection)) {}

  // Null: the socket has been read empty, so what is missing will wake who waits for it.
  const StepHeader* try_step(std::byte* direct, std::size_t bytes) override {
    while (at_ < sizeof header_) {
      if (!receive(reinterpret_cast<std::byte*>(&header_) + at_, sizeof header_ - at_)) return nullptr;
    }
    // A step of other length comes from a rank that called something else; its header says what.
    if (header_.bytes != bytes) return &header_;
    if (data_ == nullptr) data_ = bytes > kReceivedCopied && direct != nullptr ? direct : own(bytes);
    while (at_ < sizeof header_ + bytes) {
      const std::size_t done = at_ - sizeof header_;
      if (!receive(data_ + done, bytes - done)) return nullptr;
    }
    return &header_;
  }
  const std::byte* data() const override { return data_; }
  void release() override {
    at_ = 0;
    data_ = nullptr;
  }
  Wake wake() const override { return {Wake::By::descriptor, connection_->socket(), POLLIN}; }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  bool receive(std::byte* into, std::size_t bytes) {
    const std::size_t got = connection_->recv({into, bytes});
    at_ += got;
    return got != 0;
  }
  std::byte* own(std::size_t bytes) {
    const std::size_t lines = 1 + bytes / sizeof(Line);
    if (lines_.size() < lines) lines_.resize(lines);
    return lines_.front().bytes.data();
  }

  std::shared_ptr<SecureConnection> connection_;
  StepHeader header_{};
  std::size_t at_ = 0;         // bytes that are here of the step and its header
  std::byte* data_ = nullptr;  // where the step's bytes go, once that is known
  std::vector<Line> lines_;
};

}  // namespace

Links make_secure_links(SecuredSocket secured, int peer, Lane lane, FifoShape shape) {
  auto shared = std::make_shared<SecureConnection>(std::move(secured), peer, lane);
  return {.send = std::make_unique<SecureSendLink>(shared, shape),
          .recv = std::make_unique<SecureRecvLink>(shared),
          .longest_step = std::max<std::size_t>(shape.slice_bytes, kLongestSecureStep)};
}

}  // namespace rondo::comm
