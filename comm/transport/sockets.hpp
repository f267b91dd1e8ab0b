// SPDX-License-Identifier: Apache-2.0
// Options of the sockets between peers.
#pragma once
#include <cstddef>

#include "comm/base/fd.hpp"

namespace rondo {

Fd make_socket(int family);  // SOCK_STREAM, non-blocking, closed on exec
// Whether a Unix socket's other end was opened by this process' user.
bool is_same_user(const Fd& socket);
// Whether both ends of a connection are on this host: then they have the same address.
bool stays_on_host(int socket);

// Beyond what was asked for (since Linux 5.15): the kernel lets a peer send as much as a fixed buffer holds of full
// segments, throws away what it then has no room for (Linux 6.18), and a rank that comes late waits 200 ms until that
// is sent again.
void let_receive_buffer_grow(const Fd& socket);
// Before connecting or listening. Large buffers, which decide the window scale; the kernel's own tuning stays where it
// would grant less than asked for, since a fixed small buffer is slower than a growing one. Reno, for the case that
// both ends are on this host: they share no wire. BBR, the default of many hosts, holds segments back by timers, and a
// connection that began with it keeps the timers whatever it is given later.
void prepare_for_data(const Fd& socket);
// Congestion control is the host's choice between hosts. The kernel does not give up a peer before a quarter of an
// hour, and one that is alive never: a rank that is busy elsewhere, its buffers full, is no failure.
void set_data_options(const Fd& socket);
// The kernel gives up after kKernelPatience, within a host never. Not for data: to the kernel a peer that is alive but
// does not read, its buffers full, looks just as dead (measured).
void set_control_options(const Fd& socket);
// Whether something that was sent to another host is not known to have come to its kernel.
bool is_under_way(int socket);
void acknowledge_now(const Fd& socket);  // what has been received, which the kernel may put off for 40 ms
// Whether the peer's kernel takes that many bytes more, even if the peer reads nothing.
bool peer_takes(const Fd& socket, std::size_t bytes);

}  // namespace rondo
