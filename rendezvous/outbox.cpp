// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/outbox.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

namespace rondo::rendezvous {

void Outbox::push(std::string head, SharedBody body) {
  bytes_ += head.size() + (body ? body->bytes().size() : 0);
  parts_.push_back({std::move(head), std::move(body)});
}

bool Outbox::flush(int fd) {
  while (!parts_.empty()) {
    const Part& part = parts_.front();
    const std::string_view body = part.body ? std::string_view(part.body->bytes()) : std::string_view();
    const std::string_view head = std::string_view(part.head).substr(std::min(sent_, part.head.size()));
    const std::string_view rest = body.substr(sent_ - (part.head.size() - head.size()));
    iovec pieces[2] = {{const_cast<char*>(head.data()), head.size()}, {const_cast<char*>(rest.data()), rest.size()}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    const ssize_t put = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return (errno == EAGAIN || errno == EWOULDBLOCK) && bytes_ <= kMostBytes;
    sent_ += static_cast<std::size_t>(put);
    bytes_ -= static_cast<std::size_t>(put);
    if (sent_ < part.head.size() + body.size()) continue;
    parts_.pop_front();
    sent_ = 0;
  }
  return true;
}

}  // namespace rondo::rendezvous
