// SPDX-License-Identifier: Apache-2.0
// The device seam for the host executor: every CUDA thread is a fiber. Flag accesses are scheduling points; plain
// accesses are plain, so that the sanitizers see them. Never included by itself: see seam.cuh.
#pragma once
#include <cstring>
#include <type_traits>

#include "kernels/device/layout.hpp"
#include "kernels/simt/simt.hpp"

#define RONDO_DEVICE inline
#define RONDO_DEVICE_CALL inline
#define RONDO_KERNEL inline void
#define RONDO_KERNEL_ARGUMENT const
#define RONDO_SHARED(T, name)       \
  static const char name##_key = 0; \
  T& name = *static_cast<T*>(::rondo::simt::static_shared(&name##_key, sizeof(T), alignof(T)))
#define RONDO_UNROLL

namespace rondo::kernels::device {

// clang 14 has no std::source_location.
#define RONDO_SEAM_PLACE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

inline const simt::LaneHead& lane_head() { return *simt::t_lane; }
inline unsigned thread_index() { return lane_head().tid.x; }
inline unsigned block_index() { return lane_head().bid.x; }
inline unsigned block_threads() { return lane_head().bdim.x; }
inline unsigned grid_blocks() { return lane_head().gdim.x; }
inline unsigned lane_index() { return lane_head().linear_tid & 31; }

inline void block_sync(RONDO_SEAM_PLACE) { simt::barrier(0, 0, false, file, line); }
inline bool block_or(bool value, RONDO_SEAM_PLACE) { return simt::barrier(0, 0, value, file, line); }
inline void group_sync(unsigned id, unsigned threads, RONDO_SEAM_PLACE) {
  simt::barrier(id, threads, false, file, line);
}
inline std::uint64_t warp_meet(simt::Coll kind, std::uint64_t value, std::uint32_t argument, const char* file,
                               unsigned line) {
  return simt::warp_collective(kind, ~0u, value, argument, file, line);
}
inline void warp_sync(RONDO_SEAM_PLACE) { warp_meet(simt::Coll::Sync, 0, 0, file, line); }
inline std::uint32_t warp_ballot(bool value, RONDO_SEAM_PLACE) {
  return static_cast<std::uint32_t>(warp_meet(simt::Coll::Ballot, value ? 1 : 0, 0, file, line));
}
inline bool warp_any(bool value, RONDO_SEAM_PLACE) {
  return warp_meet(simt::Coll::Ballot, value ? 1 : 0, 0, file, line) != 0;
}
template <class T>
T shuffle(T value, unsigned lane, RONDO_SEAM_PLACE) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_meet(simt::Coll::Shfl, bits, lane, file, line);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline void scheduling_point() {
  if (__builtin_expect(lane_head().explore, 0)) simt::yield_point();
}
inline void stored(const void* p) {
  if (__builtin_expect(lane_head().explore, 0)) {
    simt::stored(p);
    simt::yield_point();
  }
}
template <class U>
U load_flag(const U* p, int order) {
  scheduling_point();
  std::uint64_t own = 0;
  if (__builtin_expect(lane_head().weak, 0) && simt::weak_forward(p, sizeof(U), &own)) return static_cast<U>(own);
  return order == __ATOMIC_ACQUIRE ? __atomic_load_n(p, __ATOMIC_ACQUIRE) : __atomic_load_n(p, __ATOMIC_RELAXED);
}
template <class U>
void store_flag(U* p, U value) {
  if (__builtin_expect(lane_head().weak, 0)) {
    simt::weak_store(p, sizeof(U), value);
  } else {
    __atomic_store_n(p, value, __ATOMIC_RELAXED);
    stored(p);
  }
}
template <class U>
U load_acquire(const U* p) {
  return load_flag(p, __ATOMIC_ACQUIRE);
}
template <class U>
U load_relaxed(const U* p) {
  return load_flag(p, __ATOMIC_RELAXED);
}
template <class U>
void store_release(U* p, std::type_identity_t<U> value) {
  scheduling_point();
  if (__builtin_expect(lane_head().weak, 0)) simt::weak_release();
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
  stored(p);
}
template <class U>
void store_relaxed(U* p, std::type_identity_t<U> value) {
  scheduling_point();
  store_flag(p, static_cast<U>(value));
}
inline bool exchange_if(std::uint32_t* p, std::uint32_t expected, std::uint32_t desired) {
  scheduling_point();
  if (__builtin_expect(lane_head().weak, 0)) simt::weak_release();
  const bool won = __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  stored(p);
  return won;
}

template <class W>
W load(const void* p) {
  scheduling_point();
  W value;
  std::memcpy(&value, __builtin_assume_aligned(p, alignof(W)), sizeof(W));
  return value;
}
template <class W>
void store(void* p, std::type_identity_t<W> value) {
  std::memcpy(__builtin_assume_aligned(p, alignof(W)), &value, sizeof(W));
  scheduling_point();
}

// 8-byte words are whole, lines are not: while exploring, another lane may run between the halves, in either order.
inline bool second_half_first() { return __builtin_expect(lane_head().explore, 0) && (simt::rng() & 1) != 0; }
inline u64x2 ll_load(const void* p) {
  auto* words = static_cast<const std::uint64_t*>(p);
  u64x2 value;
  if (second_half_first()) {
    value.y = load_relaxed(words + 1);
    value.x = load_relaxed(words);
  } else {
    value.x = load_relaxed(words);
    value.y = load_relaxed(words + 1);
  }
  return value;
}
inline void ll_store(void* p, u64x2 value) {
  auto* words = static_cast<std::uint64_t*>(p);
  scheduling_point();
  if (second_half_first()) {
    store_flag(words + 1, value.y);
    store_flag(words, value.x);
  } else {
    store_flag(words, value.x);
    store_flag(words + 1, value.y);
  }
}
// The warp meets; the flag words (the second of every eighth lane) are stored last and loaded first. That is what the
// hardware promises, and no more.
inline void ll128_store(void* p, u64x2 value, RONDO_SEAM_PLACE) {
  auto* words = static_cast<std::uint64_t*>(p);
  const bool has_flag = (lane_index() & 7) == 7;
  warp_meet(simt::Coll::Line128Store, 0, 0, file, line);
  __atomic_store_n(words, value.x, __ATOMIC_RELAXED);
  if (!has_flag) __atomic_store_n(words + 1, value.y, __ATOMIC_RELAXED);
  warp_meet(simt::Coll::Line128Store, 1, 0, file, line);
  if (!has_flag) return;
  __atomic_store_n(words + 1, value.y, __ATOMIC_RELEASE);
  stored(p);
}
inline u64x2 ll128_load(const void* p, RONDO_SEAM_PLACE) {
  auto* words = static_cast<const std::uint64_t*>(p);
  const bool has_flag = (lane_index() & 7) == 7;
  u64x2 value{};
  warp_meet(simt::Coll::Line128Load, 0, 0, file, line);
  if (has_flag) value.y = __atomic_load_n(words + 1, __ATOMIC_ACQUIRE);
  warp_meet(simt::Coll::Line128Load, 1, 0, file, line);
  value.x = __atomic_load_n(words, __ATOMIC_RELAXED);
  if (!has_flag) value.y = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
  return value;
}

// Parks the lane until the word at p is not `seen` any more, the abort word is set, or the executor wants the lane to
// look at the clock.
class Spin {
 public:
  template <class V>
  bool pause(const void* p, const V& seen, const std::uint32_t* abort) {
    simt::park(p, &seen, sizeof(V), abort);
    return true;
  }
};

class SpinAny {
 public:
  void begin() { count_ = 0; }
  template <class V>
  void watch(const V* p, const V& seen) {
    simt::Watch& watch = watches_[count_++];
    watch.addr = p;
    watch.size = sizeof(V);
    std::memcpy(watch.seen, &seen, sizeof(V));
  }
  bool pause(const std::uint32_t* abort) {
    simt::park_any(watches_, count_, abort);
    return true;
  }

 private:
  unsigned count_ = 0;
  simt::Watch watches_[kMaxRanks];
};

inline std::uint64_t timer_ns() { return simt::timer_ns(); }
inline void trap(const char* why) { simt::trap(why); }
#undef RONDO_SEAM_PLACE

}  // namespace rondo::kernels::device
