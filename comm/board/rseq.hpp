// SPDX-License-Identifier: Apache-2.0
// Restartable sequences, rseq(2): whenever a thread gets a core, the kernel writes down for it which one. The C library
// asks for that, its allocator and hardly any program have a use for it, and it is an eighth of what giving a core away
// and getting it back takes.
#pragma once

namespace rondo::comm {

// From now on this thread goes without, where it had it from the C library. sched_getcpu() still answers; so does
// whoever looks, as it must, whether it is registered.
void leave_rseq();
// If this thread has left, it is registered again.
void rejoin_rseq();

}  // namespace rondo::comm
