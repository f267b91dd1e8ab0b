// SPDX-License-Identifier: Apache-2.0
// Restartable sequences, rseq(2): whenever a thread has been given a core, the kernel writes into the thread's memory
// which one. The C library asks for that on behalf of every thread, hardly any program looks, and it is a tenth of what
// a switch takes.
#pragma once

namespace rondo::comm {

// From now on this thread goes without, where it had it from the C library. sched_getcpu() still answers, and whoever
// looks finds that the thread is not registered, as one must expect.
void leave_rseq();
// If this thread has left, it is registered again.
void rejoin_rseq();

}  // namespace rondo::comm
