// SPDX-License-Identifier: Apache-2.0
// The device seam for nvcc: one line of PTX per function. Never included by itself: see seam.cuh.
#pragma once
#include "kernels/convert.hpp"
#include "kernels/device/layout.hpp"

#define RONDO_DEVICE __device__ __forceinline__
// Inline for the linker: nvcc leaves a host function that exits under each name, and the host executor's have the same.
#define RONDO_DEVICE_CALL inline __device__ __noinline__
// Static for the same reason: a kernel has a host function that launches it.
#define RONDO_KERNEL static __global__ void __launch_bounds__(::rondo::kernels::device::kMaxThreads, 1)
#define RONDO_SMALL_KERNEL static __global__ void __launch_bounds__(::rondo::kernels::device::kMaxThreads, 2)
#define RONDO_KERNEL_ARGUMENT const __grid_constant__
#define RONDO_SHARED(T, name) __shared__ T name
#define RONDO_UNROLL _Pragma("unroll")
#define RONDO_NO_UNROLL _Pragma("unroll 1")

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

// Whoever launches a kernel early asks its code's version first (comm/device/launch/launch_way.hpp).
RONDO_DEVICE void await_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

RONDO_DEVICE unsigned thread_index() { return threadIdx.x; }
RONDO_DEVICE unsigned block_index() { return blockIdx.x; }
RONDO_DEVICE unsigned block_threads() { return blockDim.x; }
RONDO_DEVICE unsigned grid_blocks() { return gridDim.x; }
RONDO_DEVICE unsigned lane_index() {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

RONDO_DEVICE void block_sync() { __syncthreads(); }
RONDO_DEVICE bool block_or(bool value) { return __syncthreads_or(value); }
RONDO_DEVICE void group_sync(unsigned id, unsigned threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
RONDO_DEVICE void warp_sync() { __syncwarp(); }
RONDO_DEVICE bool warp_any(bool value) { return __any_sync(~0u, value); }
RONDO_DEVICE std::uint32_t warp_ballot(bool value) { return __ballot_sync(~0u, value); }
template <class T>
RONDO_DEVICE T shuffle(T value, unsigned lane) {
  return __shfl_sync(~0u, value, lane);
}

RONDO_DEVICE std::uint64_t global_address(const void* p) { return __cvta_generic_to_global(p); }

#define RONDO_SEAM_LOAD(name, order)                                                                         \
  RONDO_DEVICE std::uint64_t name(const std::uint64_t* p) {                                                  \
    std::uint64_t value;                                                                                     \
    asm volatile("ld." order ".sys.global.b64 %0, [%1];" : "=l"(value) : "l"(global_address(p)) : "memory"); \
    return value;                                                                                            \
  }                                                                                                          \
  RONDO_DEVICE std::uint32_t name(const std::uint32_t* p) {                                                  \
    std::uint32_t value;                                                                                     \
    asm volatile("ld." order ".sys.global.b32 %0, [%1];" : "=r"(value) : "l"(global_address(p)) : "memory"); \
    return value;                                                                                            \
  }
#define RONDO_SEAM_STORE(name, order)                                                                      \
  RONDO_DEVICE void name(std::uint64_t* p, std::uint64_t value) {                                          \
    asm volatile("st." order ".sys.global.b64 [%0], %1;" ::"l"(global_address(p)), "l"(value) : "memory"); \
  }                                                                                                        \
  RONDO_DEVICE void name(std::uint32_t* p, std::uint32_t value) {                                          \
    asm volatile("st." order ".sys.global.b32 [%0], %1;" ::"l"(global_address(p)), "r"(value) : "memory"); \
  }
RONDO_SEAM_LOAD(load_acquire, "acquire")
RONDO_SEAM_LOAD(load_relaxed, "relaxed")
RONDO_SEAM_STORE(store_release, "release")
RONDO_SEAM_STORE(store_relaxed, "relaxed")
#undef RONDO_SEAM_LOAD
#undef RONDO_SEAM_STORE

// No fence: loads are performed before the barrier, or before what was computed of them, and a store does not go back
// in time to change what they brought. What a fence would add is that stores from before it are seen first.
RONDO_DEVICE void give_credit(std::uint64_t* p, std::uint64_t value) { store_relaxed(p, value); }
RONDO_DEVICE std::uint64_t load_credit(const std::uint64_t* p) { return load_acquire(p); }

RONDO_DEVICE bool exchange_if(std::uint32_t* p, std::uint32_t expected, std::uint32_t desired) {
  std::uint32_t old;
  asm volatile("atom.acq_rel.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(global_address(p)), "r"(expected), "r"(desired)
               : "memory");
  return old == expected;
}

template <class W>
RONDO_DEVICE W load(const void* p) {
  return *static_cast<const W*>(p);
}
template <>
RONDO_DEVICE u64x2 load<u64x2>(const void* p) {
  u64x2 value;
  asm volatile("ld.global.v2.b64 {%0, %1}, [%2];" : "=l"(value.x), "=l"(value.y) : "l"(global_address(p)) : "memory");
  return value;
}
template <class W>
RONDO_DEVICE void store(void* p, W value) {
  *static_cast<W*>(p) = value;
}
template <>
RONDO_DEVICE void store<u64x2>(void* p, u64x2 value) {
  asm volatile("st.global.v2.b64 [%0], {%1, %2};" ::"l"(global_address(p)), "l"(value.x), "l"(value.y) : "memory");
}

RONDO_DEVICE u64x2 ll_load(const void* p) {
  u64x2 value;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(value.x), "=l"(value.y)
               : "l"(global_address(p))
               : "memory");
  return value;
}
RONDO_DEVICE void ll_store(void* p, u64x2 value) {
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(global_address(p)), "l"(value.x), "l"(value.y)
               : "memory");
}
RONDO_DEVICE void lines_have_come() {}
// The end of the launch before has written back what other kernels of this GPU have left.
RONDO_DEVICE void ll_open(void* p, u64x2 value) { ll_store(p, value); }
RONDO_DEVICE void ll_release(void* p, u64x2 value) {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  ll_store(p, value);
}
RONDO_DEVICE void ll_trust(const void* p) { load_acquire(static_cast<const std::uint64_t*>(p)); }
// Relies on the hardware making each 128-byte line of a warp-wide store visible as a whole: true on one GPU and over
// NVLink.
RONDO_DEVICE u64x2 ll128_load(const void* p) { return ll_load(p); }
RONDO_DEVICE void ll128_store(void* p, u64x2 value) { ll_store(p, value); }

inline constexpr unsigned kEagerPolls = 1u << 12;

class Spin {
 public:
  template <class V>
  RONDO_DEVICE bool pause(const void*, const V&, const std::uint32_t*) {
    if (++rounds_ % kInspect != 0) return false;
    if (rounds_ > kPatience) __nanosleep(1000);  // somebody else may need the multiprocessor
    return true;
  }

 private:
  static constexpr std::uint32_t kInspect = 1u << 12, kPatience = 1u << 15;
  std::uint32_t rounds_ = 0;
};

class SpinAny : public Spin {
 public:
  RONDO_DEVICE void begin() {}
  template <class V>
  RONDO_DEVICE void watch(const V*, const V&) {}
  RONDO_DEVICE bool pause(const std::uint32_t* abort) { return Spin::pause(nullptr, 0, abort); }
};

// The hardware rounds as kernels/convert.hpp does; only the payload of a NaN differs.
RONDO_DEVICE float widen_f16(std::uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<std::uint16_t>(bits)));
  return value;
}
RONDO_DEVICE std::uint32_t narrow_f16_pair(float low, float high) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  std::uint16_t first, second;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(first) : "f"(low));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(second) : "f"(high));
  return first | static_cast<std::uint32_t>(second) << 16;
#endif
}
RONDO_DEVICE std::uint32_t narrow_bf16_pair(float low, float high) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return (Bfloat::narrow(low) & 0xffffu) | Bfloat::narrow(high) << 16;
#endif
}

RONDO_DEVICE std::uint64_t timer_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
RONDO_DEVICE void trap(const char*) { __trap(); }

RONDO_DEVICE std::uint64_t ticks() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
  return now;
}
RONDO_DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
RONDO_DEVICE void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
RONDO_DEVICE std::uint64_t load_acquire_gpu(const std::uint64_t* p) {
  std::uint64_t value;
  asm volatile("ld.acquire.gpu.global.b64 %0, [%1];" : "=l"(value) : "l"(global_address(p)) : "memory");
  return value;
}
RONDO_DEVICE void store_release_gpu(std::uint64_t* p, std::uint64_t value) {
  asm volatile("st.release.gpu.global.b64 [%0], %1;" ::"l"(global_address(p)), "l"(value) : "memory");
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
