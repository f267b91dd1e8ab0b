// SPDX-License-Identifier: Apache-2.0
// The device seam for the host executor: every CUDA thread is a fiber. Flag accesses are scheduling points; plain
// accesses are plain, so that the sanitizers see them. Never included by itself: see seam.cuh.
#pragma once
#include <cstring>
#include <type_traits>

#include "kernels/convert.hpp"
#include "kernels/device/layout.hpp"
#include "kernels/simt/lane_api.hpp"

#define RONDO_DEVICE inline
#define RONDO_DEVICE_CALL inline
#define RONDO_KERNEL inline void
#define RONDO_SMALL_KERNEL inline void
#define RONDO_KERNEL_ARGUMENT const
#define RONDO_SHARED(T, name)       \
  static const char name##_key = 0; \
  T& name = *static_cast<T*>(::rondo::simt::shared_variable(&name##_key, sizeof(T), alignof(T)))
#define RONDO_UNROLL
#define RONDO_NO_UNROLL

// RONDO_COST(call): tells who counts (costs.hpp); RONDO_COST_MEETING: the same of where lanes meet, as long as it
// lives.
#ifndef RONDO_COSTS
#define RONDO_COST(call)
#define RONDO_COST_MEETING(meeting)
#else
#include "kernels/device/costs.hpp"
#define RONDO_COST(call) ::rondo::kernels::device::costs::call
#define RONDO_COST_MEETING(meeting) const ::rondo::kernels::device::costs::meeting
#endif

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

inline const simt::LaneHead& lane_head() { return *simt::t_lane; }
inline unsigned thread_index() { return lane_head().thread; }
inline unsigned block_index() { return lane_head().block; }
inline unsigned block_threads() { return lane_head().block_threads; }
inline unsigned grid_blocks() { return lane_head().grid_blocks; }
inline unsigned lane_index() { return lane_head().thread & 31; }

using simt::SourceLocation;
inline void block_sync(SourceLocation place = SourceLocation::here()) {
  RONDO_COST_MEETING(BlockMeeting meeting(0));
  simt::block_barrier(0, 0, false, place);
}
inline bool block_or(bool value, SourceLocation place = SourceLocation::here()) {
  RONDO_COST_MEETING(BlockMeeting meeting(0));
  return simt::block_barrier(0, 0, value, place);
}
inline void group_sync(unsigned id, unsigned threads, SourceLocation place = SourceLocation::here()) {
  RONDO_COST_MEETING(BlockMeeting meeting(id));
  simt::block_barrier(id, threads, false, place);
}
inline void warp_sync(SourceLocation place = SourceLocation::here()) {
  RONDO_COST_MEETING(WarpMeeting meeting);
  simt::warp_meet(simt::WarpOperation::sync, 0, 0, place);
}
inline std::uint32_t warp_ballot(bool value, SourceLocation place = SourceLocation::here()) {
  RONDO_COST_MEETING(WarpMeeting meeting);
  return static_cast<std::uint32_t>(simt::warp_meet(simt::WarpOperation::ballot, value ? 1 : 0, 0, place));
}
inline bool warp_any(bool value, SourceLocation place = SourceLocation::here()) {
  RONDO_COST_MEETING(WarpMeeting meeting);
  return simt::warp_meet(simt::WarpOperation::ballot, value ? 1 : 0, 0, place) != 0;
}
template <class T>
T shuffle(T value, unsigned lane, SourceLocation place = SourceLocation::here()) {
  static_assert(sizeof(T) <= 8);
  RONDO_COST_MEETING(WarpMeeting meeting);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = simt::warp_meet(simt::WarpOperation::shuffle, bits, lane, place);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline void await_stream(SourceLocation place = SourceLocation::here()) {
  simt::LaneHead& lane = *simt::t_lane;
  while (lane.ended != nullptr && __atomic_load_n(lane.ended, __ATOMIC_ACQUIRE) == 0) {
    const simt::Watch watch{.word = lane.ended, .bytes = sizeof *lane.ended};
    simt::park(&watch, 1, nullptr, place);
  }
  lane.early = false;
  lane.watched = lane.explore;
}

inline void scheduling_point() {
  if (__builtin_expect(lane_head().watched, 0)) simt::scheduling_point();
}
inline void stored(const void* p) {
  if (__builtin_expect(lane_head().explore, 0)) {
    simt::stored(p);
    simt::scheduling_point();
  }
}
template <class U>
U load_flag(const U* p, int order) {
  scheduling_point();
  RONDO_COST(read_flag(p, order == __ATOMIC_ACQUIRE));
  std::uint64_t own = 0;
  if (__builtin_expect(lane_head().weak, 0) && simt::weak_forward(p, sizeof(U), &own)) return static_cast<U>(own);
  return order == __ATOMIC_ACQUIRE ? __atomic_load_n(p, __ATOMIC_ACQUIRE) : __atomic_load_n(p, __ATOMIC_RELAXED);
}
template <class U>
void store_flag(U* p, U value) {
  RONDO_COST(wrote_flag(p));
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
  RONDO_COST(fence());
  RONDO_COST(wrote_flag(p));
  if (__builtin_expect(lane_head().weak, 0)) simt::weak_release();
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
  stored(p);
}
template <class U>
void store_relaxed(U* p, std::type_identity_t<U> value) {
  scheduling_point();
  store_flag(p, static_cast<U>(value));
}
inline void give_credit(std::uint64_t* p, std::uint64_t value) {
  scheduling_point();
  simt::before_credit(p);
  store_flag(p, value);
}
inline std::uint64_t load_credit(const std::uint64_t* p) {
  const std::uint64_t value = load_acquire(p);
  simt::after_credit(p);
  return value;
}
inline bool exchange_if(std::uint32_t* p, std::uint32_t expected, std::uint32_t desired) {
  scheduling_point();
  simt::exchanges(p);
  RONDO_COST(fence());
  RONDO_COST(read_flag(p, true));
  RONDO_COST(wrote_flag(p));
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
  RONDO_COST(wrote(p));
  std::memcpy(__builtin_assume_aligned(p, alignof(W)), &value, sizeof(W));
  scheduling_point();
}

// 8-byte words are whole, lines are not: while exploring, another lane may run between the halves, in either order.
inline bool second_half_first() { return __builtin_expect(lane_head().explore, 0) && (simt::random_bits() & 1) != 0; }
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
inline void lines_have_come() { RONDO_COST(lines_have_come()); }
// Both as ll_store; what they make known, who trusts the line knows.
inline void ll_open(void* p, u64x2 value) {
  simt::before_opening(p);
  ll_store(p, value);
}
inline void ll_release(void* p, u64x2 value) {
  auto* words = static_cast<std::uint64_t*>(p);
  const bool second = second_half_first();
  scheduling_point();
  RONDO_COST(fence());
  if (__builtin_expect(lane_head().weak, 0)) simt::weak_release();
  const auto put = [words, &value](bool half) {
    RONDO_COST(wrote_flag(words + half));
    __atomic_store_n(words + half, half ? value.y : value.x, __ATOMIC_RELEASE);
    stored(words + half);
  };
  put(second);
  put(!second);
}
inline void ll_trust(const void* p) {
  auto* words = static_cast<const std::uint64_t*>(p);
  load_acquire(words);
  __atomic_load_n(words + 1, __ATOMIC_ACQUIRE);
  simt::after_opening(p);
}
// The warp meets; the flag words (the second of every eighth lane) are stored last and loaded first. That is what the
// hardware promises, and no more.
inline void ll128_store(void* p, u64x2 value, SourceLocation place = SourceLocation::here()) {
  auto* words = static_cast<std::uint64_t*>(p);
  const bool has_flag = (lane_index() & 7) == 7;
  scheduling_point();
  simt::warp_meet(simt::WarpOperation::line128_store, 0, 0, place);
  __atomic_store_n(words, value.x, __ATOMIC_RELAXED);
  if (!has_flag) __atomic_store_n(words + 1, value.y, __ATOMIC_RELAXED);
  simt::warp_meet(simt::WarpOperation::line128_store, 1, 0, place);
  if (!has_flag) return;
  RONDO_COST(wrote_flag(words + 1));
  __atomic_store_n(words + 1, value.y, __ATOMIC_RELEASE);
  stored(p);
}
inline u64x2 ll128_load(const void* p, SourceLocation place = SourceLocation::here()) {
  auto* words = static_cast<const std::uint64_t*>(p);
  const bool has_flag = (lane_index() & 7) == 7;
  u64x2 value{};
  scheduling_point();
  simt::warp_meet(simt::WarpOperation::line128_load, 0, 0, place);
  if (has_flag) {
    RONDO_COST(read_flag(words + 1, false));
    value.y = __atomic_load_n(words + 1, __ATOMIC_ACQUIRE);
  }
  simt::warp_meet(simt::WarpOperation::line128_load, 1, 0, place);
  value.x = __atomic_load_n(words, __ATOMIC_RELAXED);
  if (!has_flag) value.y = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
  return value;
}

template <class V>
simt::Watch watch_for(const void* p, const V& seen) {
  static_assert(sizeof(V) % 4 == 0 && sizeof(V) <= sizeof(simt::Watch::seen));
  simt::Watch watch{.word = p, .bytes = sizeof(V)};
  std::memcpy(watch.seen, &seen, sizeof(V));
  return watch;
}

inline constexpr unsigned kEagerPolls = 1;  // then the lane is parked

// Parks the lane until the word at p is not `seen` any more, the abort word is set, or the executor wants the lane to
// look at the clock.
class Spin {
 public:
  template <class V>
  bool pause(const void* p, const V& seen, const std::uint32_t* abort, SourceLocation place = SourceLocation::here()) {
    const simt::Watch watch = watch_for(p, seen);
    simt::park(&watch, 1, abort, place);
    return true;
  }
};

class SpinAny {
 public:
  void begin() { count_ = 0; }
  template <class V>
  void watch(const V* p, const V& seen) {
    watches_[count_++] = watch_for(p, seen);
  }
  bool pause(const std::uint32_t* abort, SourceLocation place = SourceLocation::here()) {
    simt::park(watches_, count_, abort, place);
    return true;
  }

 private:
  unsigned count_ = 0;
  simt::Watch watches_[kMaxRanks];
};

inline float widen_f16(std::uint32_t bits) { return Half::widen(bits); }
inline std::uint32_t narrow_f16_pair(float low, float high) {
  return (Half::narrow(low) & 0xffffu) | Half::narrow(high) << 16;
}
inline std::uint32_t narrow_bf16_pair(float low, float high) {
  return (Bfloat::narrow(low) & 0xffffu) | Bfloat::narrow(high) << 16;
}

inline std::uint64_t timer_ns() { return simt::timer_ns(); }
inline void trap(const char* why) { simt::trap(why); }

inline std::uint64_t ticks() { return simt::timer_ns(); }
inline void fence_system() {
  scheduling_point();
  RONDO_COST(fence());
  if (__builtin_expect(lane_head().weak, 0)) simt::weak_release();
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
}
inline void fence_gpu() { fence_system(); }
inline std::uint64_t load_acquire_gpu(const std::uint64_t* p) { return load_acquire(p); }
inline void store_release_gpu(std::uint64_t* p, std::uint64_t value) { store_release(p, value); }

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
