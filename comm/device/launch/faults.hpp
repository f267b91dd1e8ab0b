// SPDX-License-Identifier: Apache-2.0
// What kernels leave in the host page, as sentences: the fault that made them end, and whom they are waiting for.
#pragma once
#include <optional>
#include <string>

#include <rondo/error.hpp>

#include "comm/device/launch/device_tuner.hpp"
#include "comm/team/team.hpp"

namespace rondo::comm::device {

// The page's fault, once it is complete; kind none before that.
kernels::device::Fault read_fault(const kernels::device::HostPage& page);

struct Waiting {
  int peer = -1;
  Signature signature;  // sequence 0: a message
};
// For whom block 0 says that it waits, once each time.
std::optional<Waiting> take_waiting(kernels::device::HostPage& page);
// Another value every 10 ms or so while that is so.
std::uint64_t still_waiting(const kernels::device::HostPage& page);

// What the communicator fails with; of a deadline, after the other ranks have been asked who is late. Not for
// FaultKind::aborted, which is the host's own doing.
Error error_of(const kernels::device::Fault& fault, Team& team, const Terms& terms, std::chrono::milliseconds timeout);

// The rank that is waited for has destroyed its communicator.
Error departure_of(const Waiting& waiting, const Team& team);

// "rank 0 has waited 2.1 s in all_reduce #7 of 1000 f32, sum for rank 2 (host a, pid 123)"
std::string report_of(const Waiting& waiting, const Team& team, std::chrono::milliseconds waited);

}  // namespace rondo::comm::device
