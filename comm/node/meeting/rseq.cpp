// SPDX-License-Identifier: Apache-2.0
#include "comm/node/meeting/rseq.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

namespace rondo::comm {

#if defined(RSEQ_SIG) && defined(SYS_rseq)
namespace {

constexpr std::uint32_t kRegistered = 32;  // bytes, by the C library; where it was more the kernel refuses

constinit thread_local bool has_tried = false, has_left = false;

bool call_rseq(int flags) {
  void* const area = static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset;
  return ::syscall(SYS_rseq, area, kRegistered, flags, RSEQ_SIG) == 0;
}

}  // namespace

void leave_rseq() {
  if (has_tried) return;
  has_tried = true;
  has_left = __rseq_size != 0 && call_rseq(RSEQ_FLAG_UNREGISTER);
}

void rejoin_rseq() {
  if (!has_left) return;
  call_rseq(0);
  has_tried = has_left = false;
}
#else
void leave_rseq() {}
void rejoin_rseq() {}
#endif

}  // namespace rondo::comm
