// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/outbox.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace rondo::rendezvous {
namespace {

constexpr std::size_t kEncryptedAtOnceBytes = 256 << 10;

}  // namespace

void Outbox::push(std::string head, SharedBody body) {
  bytes_ += head.size() + (body ? body->bytes().size() : 0);
  parts_.push_back({std::move(head), std::move(body)});
}

bool Outbox::flush(int fd) {
  if (tls_) return flush_encrypted(fd);
  while (!parts_.empty()) {
    const auto [head, body] = rest();
    iovec pieces[2] = {{const_cast<char*>(head.data()), head.size()}, {const_cast<char*>(body.data()), body.size()}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    const ssize_t put = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return (errno == EAGAIN || errno == EWOULDBLOCK) && bytes_ <= kMostBytes;
    advance(static_cast<std::size_t>(put));
  }
  return true;
}

// Of the first part.
std::pair<std::string_view, std::string_view> Outbox::rest() const {
  const Part& part = parts_.front();
  const std::string_view body = part.body ? std::string_view(part.body->bytes()) : std::string_view();
  const std::string_view head = std::string_view(part.head).substr(std::min(sent_, part.head.size()));
  return {head, body.substr(sent_ - (part.head.size() - head.size()))};
}

void Outbox::advance(std::size_t bytes) {
  const Part& part = parts_.front();
  sent_ += bytes;
  bytes_ -= bytes;
  if (sent_ < part.head.size() + (part.body ? part.body->bytes().size() : 0)) return;
  parts_.pop_front();
  sent_ = 0;
}

bool Outbox::flush_encrypted(int fd) {
  TlsBytes& output = tls_->output();
  for (;;) {
    while (!output.empty()) {
      const std::string_view bytes = output.pending();
      const ssize_t put = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return (errno == EAGAIN || errno == EWOULDBLOCK) && bytes_ <= kMostBytes;
      output.sent(static_cast<std::size_t>(put));
    }
    if (parts_.empty()) return true;
    const auto [head, body] = rest();
    std::string piece(head);
    piece += body.substr(0, kEncryptedAtOnceBytes);
    if (tls_->tls().write(as_bytes(piece)) != 0) return false;
    advance(piece.size());
  }
}

}  // namespace rondo::rendezvous
