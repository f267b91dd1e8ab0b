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
bool stays_on_host(const Fd& socket);

// Beyond what was asked for (since Linux 5.15): the kernel lets a peer send as much as a fixed buffer holds of full
// segments, throws away what it then has no room for (Linux 6.18), and a rank that comes late waits 200 ms until that
// is sent again.
void let_receive_buffer_grow(const Fd& socket);
// Before connecting or listening. Large buffers, which decide the window scale; the kernel's own tuning stays where it
// would grant less than asked for, since a fixed small buffer is slower than a growing one. Reno, for the case that
// both ends are on this host: they share no wire. BBR, the default of many hosts, holds segments back by timers, and a
// connection that began with it keeps the timers whatever it is given later.
void prepare_for_data(const Fd& socket);
// Between hosts, one that vanished is noticed in about 3 s while nothing is in flight, and congestion control is the
// host's choice; within a host there is no limit.
void set_data_options(const Fd& socket);
// The same, also with bytes in flight. Not for data: to the kernel a peer that is alive but does not read for 2 s
// looks just as dead (measured), and on a data socket a rank busy elsewhere is no failure.
void set_control_options(const Fd& socket);
// Whether the peer's kernel takes that many bytes more, even if the peer reads nothing.
bool peer_takes(const Fd& socket, std::size_t bytes);

}  // namespace rondo
