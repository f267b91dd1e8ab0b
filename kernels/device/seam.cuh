// SPDX-License-Identifier: Apache-2.0
// The device seam: all that kernels may say of the machine they run on. One list of functions, written twice: for
// nvcc (seam_cuda.cuh) and for the host executor (seam_host.cuh). Kernels use no CUDA spelling of their own: no
// threadIdx, __shared__, asm, volatile, atomics or fences; a lint holds them to it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rondo::kernels::device {
struct alignas(16) u64x2 {
  std::uint64_t x, y;
};
}  // namespace rondo::kernels::device

// Both compilers leave code of the same functions for the host, nvcc's ends the process: the linker must not mix them
// up. Nor kernels with stamps (stamps.cuh), kernels that are counted (costs.hpp), and those without.
#if defined(__CUDACC__)
#ifdef RONDO_STAMPS
#define RONDO_SEAM on_cuda_stamped
#else
#define RONDO_SEAM on_cuda
#endif
#include "kernels/device/seam_cuda.cuh"
#else
#ifdef RONDO_STAMPS
#define RONDO_SEAM on_host_stamped
#elif defined(RONDO_COSTS)
#define RONDO_SEAM on_host_counted
#else
#define RONDO_SEAM on_host
#endif
#include "kernels/device/seam_host.cuh"
#endif

// RONDO_SEAM            the inline namespace of everything in a .cuh
// RONDO_DEVICE          a function that runs in kernels
// RONDO_KERNEL          a kernel of at most kMaxThreads threads, one block per multiprocessor
// RONDO_SMALL_KERNEL    the same, two blocks: at most 64 registers
// RONDO_SHARED(T, name) one object per block, not initialised
// RONDO_UNROLL          before a loop of constant length; RONDO_NO_UNROLL: where code size matters more
//
// Stream:  await_stream(), by every thread of a kernel before it uses memory or ends: the kernel may be launched early,
//          while what comes before it on its stream still runs; after it, that has ended and is seen
// Index:   thread_index block_index block_threads grid_blocks lane_index
// Block:   block_sync block_or(bool) group_sync(id, threads)
// Warp:    warp_sync warp_any(bool) warp_ballot(bool) shuffle(value, lane); only warp_sync orders memory
// Flags:   load_acquire load_relaxed store_release store_relaxed exchange_if(p, expected, desired): system scope;
//          exchanges are of words of device memory alone
// Credits: give_credit(p, value) load_credit(p): a relaxed store that comes after loads alone, and after a barrier for
//          those of other threads; who has loaded it may write what they loaded. It makes no store known to anybody
// Memory:  load<W>(p) store<W>(p, value), W: unsigned integers of 1 to 8 bytes, u64x2; plain accesses, aligned to W
// Lines:   ll_load ll_store: two 8-byte {data, flag} words, each whole, not both together
//          lines_have_come(): by who has waited for lines, once for all that it looked at together; for tests that
//          count
//          ll_open(p, value) ll_release(p, value): ll_store that makes known what was there when the kernel began, by a
//          thread that has met no other yet and written nothing; or, with a fence, what came before. ll_trust(p), when
//          the line has come: the thread knows it. Who only loads a line knows nothing but the line
//          ll128_load ll128_store: by a whole warp, 16 bytes a lane; each 128-byte line becomes visible as a whole
// Waiting: Spin: every loop that waits calls pause(p, seen, abort) with the value it did not like, in each round; true
//          when it is time to look at the abort word and the clock
//          kEagerPolls: so many times a thread looks at several lines before it waits for one of them
//          SpinAny: the same for one thread that waits for any of several words: in each round begin(), watch(p, seen)
//          for each (1 to kMaxRanks), pause(abort)
// Numbers: widen_f16(bits), narrow_f16_pair narrow_bf16_pair(low, high): as kernels/convert.hpp, NaN payloads excepted
// Other:   timer_ns() of one clock for the whole machine, trap(why)
// Measured alone (tools/gpu_check): ticks() of the block's own multiprocessor; load_acquire_gpu store_release_gpu: as
//          without _gpu, between blocks of one GPU; fence_system fence_gpu
