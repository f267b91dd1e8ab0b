// SPDX-License-Identifier: Apache-2.0
// The windows of a communicator: memory of every rank that kernels of every rank read and write in place. Window 0 is
// the staging area. Windows are numbered alike on all ranks, because they are made in the same order.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/device/memory/regions.hpp"

namespace rondo::comm::device {

inline constexpr int kNoWindow = -1;

struct WindowPlace {
  int window = kNoWindow;
  std::uint64_t offset = 0;  // bytes from the window's start
};

class Windows {
 public:
  // `node`: where the communicator spans nodes and has levels, the regions of this node's ranks, whose kernels use the
  // windows: every window is shared within each node. All ranks have it or none.
  explicit Windows(Regions& regions, Regions* node = nullptr);
  ~Windows();  // bounded; before the Regions. Kernels that use windows have ended.
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  struct Allocation {
    int window = kNoWindow;  // kNoWindow: the memory cannot be shared here; it is this rank's alone, and is staged
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  // Collective, equal bytes on every rank: device memory, zeroed, aligned to 256 bytes. mismatch: bytes differ;
  // unsupported: kMaxWindows are in use; cuda: names the rank that has no memory left.
  Allocation allocate(std::size_t bytes);
  // Collective: the caller's device memory; each rank's own pointer and bytes. A rank whose memory cannot be exported
  // has none in this window, says so once, and stages. The memory must live until it is given up by collect().
  Allocation register_memory(std::byte* data, std::size_t bytes);

  // Local, any order, any thread: no call from now on uses the allocation; `last_use` is recorded after the last that
  // did (empty: none did). Its memory and number are given back at the next collective point at which every rank has
  // said so and every rank's last use has passed, or at destruction.
  void release(const Allocation& allocation, Event last_use);
  // Collective: a collective point. allocate() and register_memory() are ones too.
  void collect();

  // The window that holds all of [data, data + bytes).
  WindowPlace find(const void* data, std::size_t bytes) const;
  std::size_t bytes() const;  // of device memory that allocate() holds, released but not yet freed included

 private:
  struct Entry;
  struct Arrival;
  using Set = std::uint64_t;  // a bit per window

  Allocation arrive(Arrival mine, std::byte* data);
  Set retired() const;
  int find_reusable(Set collected, std::size_t bytes) const;
  void discard(Set collected);
  std::unique_ptr<Entry> take(std::size_t window);
  Allocation renew(int window, std::size_t bytes);
  Allocation add(const Arrival& wish, std::byte* data);
  Export prepare(Entry& entry, bool allocates);
  void connect(int window, const std::vector<Bytes>& exports);

  bool are_shared() const;

  Regions& regions_;
  Regions& table_;                               // has the kernels' table
  std::vector<int> members_;                     // whom a window is shared with, by that table's numbers
  mutable std::mutex mutex_;                     // guards the next two: release() may come from any thread
  std::vector<std::unique_ptr<Entry>> entries_;  // by window; null: free. Collective points alone put them there
  std::map<const std::byte*, int> by_address_;   // start of this rank's memory: the window
  bool said_not_exportable_ = false;
};

}  // namespace rondo::comm::device
