// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/descriptors.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "comm/base/system_error.hpp"
#include "comm/transport/wire.hpp"

namespace rondo {
namespace {

using std::chrono::milliseconds;
constexpr std::uint32_t kTagMagic = 0x7267'6664U;
constexpr milliseconds kInFlightPause{10};  // ETOOMANYREFS has no readiness event

struct alignas(cmsghdr) ControlBuffer {
  std::array<std::byte, CMSG_SPACE(sizeof(int) * kDescriptorsPerMessage)> bytes{};
};

[[noreturn]] void throw_lost(const char* doing) {
  throw Error(ErrorCode::peer_lost, fmt::format("the process at the other end left while {} a descriptor", doing));
}

std::vector<Fd> take_descriptors(msghdr& message) {
  std::vector<Fd> taken;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      taken.emplace_back(fd);
    }
  }
  return taken;
}

// Waits until the socket is ready or a little has passed; timeout at the deadline.
void wait_ready(int socket, short events, Store::Deadline deadline, milliseconds at_most) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) {
    throw Error(ErrorCode::timeout,
                fmt::format("no descriptor could be {} before the deadline", events == POLLIN ? "received" : "sent"));
  }
  pollfd entry{socket, events, 0};
  const milliseconds wait = std::clamp(left, milliseconds(1), at_most);
  if (::poll(&entry, 1, static_cast<int>(wait.count())) < 0 && errno != EINTR) throw_errno("cannot poll a socket");
}

}  // namespace

bool try_send_message(int socket, std::span<const std::byte> payload, std::span<const int> descriptors) {
  ControlBuffer control;
  iovec part{const_cast<std::byte*>(payload.data()), payload.size()};  // sendmsg only reads
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(payload.size())) return true;
  if (sent >= 0) throw Error(ErrorCode::system, "a Unix socket took a message in part");
  if (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS || errno == ENOBUFS) return false;
  if (errno == EPIPE || errno == ECONNRESET) throw_lost("receiving");
  throw_errno("cannot send descriptors to a process of this node");
}

std::optional<std::vector<Fd>> try_receive_message(int socket, std::span<std::byte> payload) {
  ControlBuffer control;
  iovec part{payload.data(), payload.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::nullopt;
    if (errno == ECONNRESET) throw_lost("sending");
    throw_errno("cannot receive descriptors from a process of this node");
  }
  std::vector<Fd> taken = take_descriptors(message);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    throw Error(ErrorCode::system,
                "the kernel dropped descriptors sent to this process; raise its limit of open files (ulimit -n)");
  }
  if (got == 0) throw_lost("sending");
  if (got != static_cast<ssize_t>(payload.size())) {
    throw Error(ErrorCode::corrupt_message, "a process of this node sent a message of the wrong size");
  }
  return taken;
}

void send_descriptor(const Fd& socket, const Fd& descriptor, std::uint64_t tag, Store::Deadline deadline) {
  WireWriter payload;
  payload.number(kTagMagic).number(tag);
  const int fd = descriptor.get();
  while (!try_send_message(socket.get(), payload.bytes(), std::span(&fd, 1))) {
    wait_ready(socket.get(), POLLOUT, deadline, kInFlightPause);
  }
}

TaggedDescriptor receive_descriptor(const Fd& socket, Store::Deadline deadline) {
  std::array<std::byte, sizeof(kTagMagic) + sizeof(std::uint64_t)> payload{};
  std::optional<std::vector<Fd>> fds;
  while (!(fds = try_receive_message(socket.get(), payload))) {
    wait_ready(socket.get(), POLLIN, deadline, milliseconds(60'000));
  }
  WireReader reader(payload);
  const bool tagged = reader.number<std::uint32_t>() == kTagMagic;
  const auto tag = reader.number<std::uint64_t>();
  if (!tagged || fds->size() != 1) {
    throw Error(ErrorCode::corrupt_message, "a process of this node sent something else than one descriptor");
  }
  return {std::move(fds->front()), tag};
}

}  // namespace rondo
