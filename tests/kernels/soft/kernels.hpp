// SPDX-License-Identifier: Apache-2.0
// Kernels of the tests.
#pragma once
#include "kernels/device/seam.cuh"
#include "kernels/soft/kernel.hpp"

namespace rondo::soft::testing {

// Adds a number to each element; an element that is not even touched shows.
struct Add {
  std::uint32_t* data;
  std::uint32_t count, value;
};
inline void add_body(const Add& add) {
  using namespace kernels::device;
  for (unsigned i = block_index() * block_threads() + thread_index(); i < add.count;
       i += grid_blocks() * block_threads()) {
    store<std::uint32_t>(add.data + i, load<std::uint32_t>(add.data + i) + add.value);
  }
}
inline constexpr Kernel kAdd = kernel<add_body, Add>("add");

// Waits until *gate is `open`; then *passed becomes 1.
struct Gate {
  const std::uint32_t* gate;
  std::uint32_t open;
  std::uint32_t* passed;
  std::uint32_t* reached = nullptr;
};
inline void gate_body(const Gate& gate) {
  using namespace kernels::device;
  if (gate.reached != nullptr && thread_index() == 0 && block_index() == 0) store_release(gate.reached, 1);
  Spin spin;
  for (;;) {
    const std::uint32_t seen = load_acquire(gate.gate);
    if (seen == gate.open) break;
    spin.pause(gate.gate, seen, nullptr);
  }
  if (thread_index() == 0 && block_index() == 0) store_release(gate.passed, 1);
}
inline constexpr Kernel kGate = kernel<gate_body, Gate>("gate");

// Takes its time; then *done becomes 1. Says in *overlapped when another one that shares `busy` was at it.
struct Dawdle {
  std::uint64_t ns;
  std::uint32_t *busy, *overlapped, *done;
};
inline void dawdle_body(const Dawdle& dawdle) {
  using namespace kernels::device;
  if (thread_index() != 0) return;
  const bool alone = exchange_if(dawdle.busy, 0, 1);
  if (!alone) store_release(dawdle.overlapped, 1);
  const std::uint64_t begin = timer_ns();
  Spin spin;
  while (timer_ns() - begin < dawdle.ns) spin.pause(dawdle.overlapped, load_acquire(dawdle.overlapped), nullptr);
  store_release(dawdle.done, 1);
  if (alone) store_release(dawdle.busy, 0);
}
inline constexpr Kernel kDawdle = kernel<dawdle_body, Dawdle>("dawdle");

// All blocks wait for each other.
struct Meet {
  std::uint32_t* arrived;
};
inline void meet_body(const Meet& meet) {
  using namespace kernels::device;
  if (thread_index() != 0) return;
  std::uint32_t before = load_acquire(meet.arrived);
  while (!exchange_if(meet.arrived, before, before + 1)) before = load_acquire(meet.arrived);
  Spin spin;
  for (std::uint32_t seen = load_acquire(meet.arrived); seen < grid_blocks(); seen = load_acquire(meet.arrived)) {
    spin.pause(meet.arrived, seen, nullptr);
  }
}
inline constexpr Kernel kMeet = kernel<meet_body, Meet>("meet");

// Says that it has begun, which no kernel of ours may, then waits for its stream; *sum becomes *passed + 1.
struct Follow {
  std::uint32_t* began;
  const std::uint32_t* passed;
  std::uint32_t* sum;
};
inline void follow_body(const Follow& follow) {
  using namespace kernels::device;
  if (thread_index() == 0) __atomic_store_n(follow.began, 1u, __ATOMIC_RELEASE);
  await_stream();
  if (thread_index() == 0) store<std::uint32_t>(follow.sum, load<std::uint32_t>(follow.passed) + 1);
}
inline constexpr Kernel kFollow = kernel<follow_body, Follow>("follow");
inline constexpr Kernel kOpenGate = kernel<gate_body, Gate>("open gate", true);  // that lets the next one begin

struct Nothing {
  std::uint32_t unused;
};
inline void trap_body(const Nothing&) { kernels::device::trap("the test's trap"); }
inline constexpr Kernel kTrap = kernel<trap_body, Nothing>("trap");

}  // namespace rondo::soft::testing
