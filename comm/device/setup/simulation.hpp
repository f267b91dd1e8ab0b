// SPDX-License-Identifier: Apache-2.0
// The simulated machine, as the environment wants it.
#pragma once

namespace rondo::comm::device {

// Reads RONDO_SIM_… and configures the soft CUDA runtime before its first use; later it stays what it is.
//   RONDO_SIM_DEVICES          devices of the machine, 1 to 64
//   RONDO_SIM_VISIBLE_DEVICES  those this process sees, in its order: "2,0"
//   RONDO_SIM_PEER_ACCESS      0: no device can read another's memory
//   RONDO_SIM_DENIED_PEERS     pairs of devices without that, by number in the machine: "0-2,1-3"
//   RONDO_SIM_BLOCKS           blocks that one device runs at the same time
//   RONDO_SIM_MPS              0: a device says that processes take turns on it; -1: it does not know the question
//   RONDO_SIM_MACHINE          makes devices of several simulated machines on one host different
// Error(invalid_argument): a value out of range.
void configure_simulation();

}  // namespace rondo::comm::device
