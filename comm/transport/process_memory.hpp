// SPDX-License-Identifier: Apache-2.0
// Memory of another process of this machine, copied by the kernel. It allows what it would allow a debugger: processes
// of one user, unless a container, a security module or the process itself withholds it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rondo {

// 0 once all of it is copied, else the errno; a part may be copied then. ESRCH: there is no such process any more.
int copy_from_process(int pid, std::uint64_t from, void* into, std::size_t bytes);
int copy_to_process(int pid, std::uint64_t into, const void* from, std::size_t bytes);

// What a page of a copy by the kernel takes longer than one within the process, in us: the least of some tries, a
// quarter of a millisecond in all. Infinite where the kernel does not copy.
double copied_page_us();

}  // namespace rondo
