// SPDX-License-Identifier: Apache-2.0
// File descriptors in messages over a Unix socket (SCM_RIGHTS). What arrives is CLOEXEC and owned at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <rondo/store.hpp>

#include "comm/base/fd.hpp"

namespace rondo {

inline constexpr std::size_t kDescriptorsPerMessage = 250;  // the kernel's SCM_MAX_FD is 253

// A descriptor with a word that says what it is for. Both block until `deadline` (the socket may be non-blocking);
// timeout; peer_lost when the other end is gone; corrupt_message for anything else than one tagged descriptor.
void send_descriptor(const Fd& socket, const Fd& descriptor, std::uint64_t tag, Store::Deadline deadline);
struct TaggedDescriptor {
  Fd fd;
  std::uint64_t tag = 0;
};
TaggedDescriptor receive_descriptor(const Fd& socket, Store::Deadline deadline);

// Building blocks on non-blocking sockets. `payload` is not empty; a message goes and comes as a whole.
// False: not now, the buffer is full or too many descriptors are in flight. Throws peer_lost or system.
bool try_send_message(int socket, std::span<const std::byte> payload, std::span<const int> descriptors);
// Fills `payload` and returns the descriptors; nullopt: nothing yet. peer_lost at the end of the stream,
// corrupt_message for a shorter message, system when this process may not hold so many descriptors.
std::optional<std::vector<Fd>> try_receive_message(int socket, std::span<std::byte> payload);

}  // namespace rondo
