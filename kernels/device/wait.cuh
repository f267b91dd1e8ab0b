// SPDX-License-Identifier: Apache-2.0
// How kernels wait and give up: every wait looks at the abort word and the clock, names its peer to the host after
// 10 ms, and compares histories with it. Whoever gives up writes the host's fault record, the first of the rank wins;
// then all blocks of the rank drain.
#pragma once
#include "kernels/device/sequence.cuh"
#include "kernels/device/stamps.cuh"

namespace rondo::kernels::device {
inline namespace RONDO_SEAM {

struct Patience {  // of a block, in shared memory; constant during an operation
  const DeviceTeam* team;
  std::uint64_t start_ns, timeout_ns;  // of the kernel
  DeviceSignature operation;           // in progress; sequence 0: none, the kernel exchanges messages
  Protocol protocol;
  bool window;
};
inline constexpr std::uint64_t kLongWaitNs = 10'000'000;

RONDO_DEVICE const std::uint32_t* abort_word(const Patience& patience) { return &patience.team->page->abort; }

// step: of the link, or the epoch of an arrival.
RONDO_DEVICE void give_up(const Patience& patience, FaultKind kind, int peer, std::uint64_t step,
                          const DeviceSignature& mine, const DeviceSignature& theirs) {
  HostPage& page = *patience.team->page;
  if (exchange_if(&patience.team->locks->fault, 0, 1)) {
    Fault& fault = page.fault;
    fault.kind = kind;
    fault.peer = peer;
    fault.channel = static_cast<std::int32_t>(block_index());
    fault.step = step;
    fault.protocol = patience.protocol;
    fault.window = patience.window;
    fault.mine = mine;
    fault.theirs = theirs;
    store_release(&fault.is_set, 1);
  }
  store_release(&page.abort, 1);
}

// A communicator's launches count on by the same words, so they run one after the other. The host cannot see to it
// where graphs hold some: then the last thread of each block looks, while others load what the kernel begins with.
// False: the communicator has failed.
template <class AnyLaunch>
RONDO_DEVICE bool enter_alone(const AnyLaunch& launch, Protocol protocol, bool window) {
  if (launch.guarded == 0 || thread_index() + 1 != block_threads()) return true;
  if (exchange_if(&launch.team->locks->running[block_index()], 0, 1)) return true;
  give_up({launch.team, 0, 0, {}, protocol, window}, FaultKind::overlap, -1, 0, {}, {});
  return false;
}
template <class AnyLaunch>
RONDO_DEVICE void leave_alone(const AnyLaunch& launch) {
  if (launch.guarded != 0 && thread_index() + 1 == block_threads()) {
    store_release(&launch.team->locks->running[block_index()], 0);
  }
}

// The peer sent what `mine` does not expect; `theirs` is what came with it, sequence 0: not known. What the two
// disagree on is what both did under the smaller of the two sequence numbers.
RONDO_DEVICE_CALL void give_up_mismatch(const Patience& patience, int peer, std::uint64_t step, DeviceSignature mine,
                                        DeviceSignature theirs) {
  const DeviceTeam& team = *patience.team;
  DeviceSignature past{};
  if (mine.sequence != 0 && theirs.sequence == 0) {
    DeviceSignature own{};
    if (find_difference(team, peer, mine.sequence, own, past)) {
      mine = own;
      theirs = past;
    }
  } else if (theirs.sequence > mine.sequence && mine.sequence != 0) {
    if (read_history(team.headers[peer], mine.sequence, past) && !(past == mine)) theirs = past;
  } else if (theirs.sequence < mine.sequence && theirs.sequence != 0) {
    if (read_history(team.headers[team.rank], theirs.sequence, past) && !(past == theirs)) mine = past;
  }
  give_up(patience, FaultKind::mismatch, peer, step, mine, theirs);
}

// Block 0 tells the host for whom it waits: one of the threads that wait for the same. False: it must try again, for
// another does, or the host has not yet read what was told before.
RONDO_DEVICE bool publish_waiting(const Patience& patience, int peer, const DeviceSignature& mine) {
  if (block_index() != 0) return true;
  HostPage& page = *patience.team->page;
  std::uint32_t* const lock = &patience.team->locks->waiting;
  if (!exchange_if(lock, 0, 1)) return false;
  const bool is_free = load_acquire(&page.told) == 0;
  const bool is_news =
      page.waiting_since_ns != patience.start_ns || page.waiting_for != peer || !(page.waiting == mine);
  if (is_news && is_free) {
    page.waiting_since_ns = patience.start_ns;
    page.waiting_for = peer;
    page.waiting = mine;
    store_release(&page.told, 1);
  }
  store_release(lock, 0);
  return is_free || !is_news;
}

// After it has told. What has been told holds for a while only: nobody takes it back.
RONDO_DEVICE void affirm_waiting(const Patience& patience, std::uint64_t now) {
  constexpr std::uint64_t kBetweenNs = 10'000'000;
  std::uint64_t* const still = &patience.team->page->still_waiting_ns;
  if (block_index() == 0 && now - load_relaxed(still) > kBetweenNs) store_relaxed(still, now);
}

// When Spin says it is time to look up. `began` is 0 at first, then what the last call returned; 0 means to give up.
inline constexpr std::uint64_t kGaveUp = 0;
inline constexpr std::uint64_t kPublished = 1;  // a bit of `began`: the host has been told, or another thread tells
RONDO_DEVICE_CALL std::uint64_t look_up(const Patience& patience, int peer, std::uint64_t step,
                                        const DeviceSignature& mine, std::uint64_t began) {
  DeviceSignature theirs{};
  if (load_relaxed(abort_word(patience)) != 0) {
    give_up(patience, FaultKind::aborted, peer, step, mine, theirs);
    return kGaveUp;
  }
  const std::uint64_t now = timer_ns();
  if (now - patience.start_ns > patience.timeout_ns) {
    give_up(patience, FaultKind::timeout, peer, step, mine, theirs);
    return kGaveUp;
  }
  if (began == 0) return (now | 2) & ~kPublished;  // never 0; a nanosecond or three do not matter
  if (now - began < kLongWaitNs) return began;
  const DeviceSignature& operation = patience.operation;
  if (read_history(patience.team->headers[peer], operation.sequence, theirs) && !(theirs == operation)) {
    give_up(patience, FaultKind::mismatch, peer, step, operation, theirs);
    return kGaveUp;
  }
  if ((began & kPublished) == 0 && !publish_waiting(patience, peer, mine)) return began;
  affirm_waiting(patience, now);
  return began | kPublished;
}

template <class Load, class Ready>
RONDO_DEVICE bool wait_by(Load&& load_word, const Patience& patience, const std::uint64_t* p, int peer,
                          std::uint64_t step, const DeviceSignature& mine, Ready&& ready) {
  Spin spin;
  std::uint64_t began = 0;
  for (;;) {
    const std::uint64_t word = load_word(p);
    if (ready(word)) return true;
    if (!spin.pause(p, word, abort_word(patience))) continue;
    began = look_up(patience, peer, step, mine, began);
    if (began == kGaveUp) return false;
  }
}

// Until ready(word) of the word at p, loaded with acquire; false: gave up.
template <class Ready>
RONDO_DEVICE bool wait_for(const Patience& patience, const std::uint64_t* p, int peer, std::uint64_t step,
                           const DeviceSignature& mine, Ready&& ready) {
  const auto load_word = [](const std::uint64_t* word) { return load_acquire(word); };
  return wait_by(load_word, patience, p, peer, step, mine, ready);
}
// The same of a word that give_credit writes.
template <class Ready>
RONDO_DEVICE bool wait_for_credit(const Patience& patience, const std::uint64_t* p, int peer, std::uint64_t step,
                                  const DeviceSignature& mine, Ready&& ready) {
  const auto load_word = [](const std::uint64_t* word) { return load_credit(word); };
  return wait_by(load_word, patience, p, peer, step, mine, ready);
}

}  // namespace RONDO_SEAM
}  // namespace rondo::kernels::device
