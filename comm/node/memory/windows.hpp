// SPDX-License-Identifier: Apache-2.0
// Memory that allocate() makes on the CPU so that every rank of a node reaches it where it lies: one mapping with a
// block for each rank, and the list of a communicator's windows, by which a buffer is described to peers.
// A block outlives its owner's interest in it: peers may read it until every rank of the node has let go.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/transport/memory.hpp"

namespace rondo::comm {

// Blocks of one size, by index in the node's segment, and a line that counts who has let go.
class NodeWindow {
 public:
  // `memory`: zeroed, of total_bytes(blocks, bytes), shared by the ranks that hold a block.
  NodeWindow(Mapping memory, int blocks, int own, std::size_t bytes);
  static std::size_t total_bytes(int blocks, std::size_t bytes);
  static std::size_t alignment(std::size_t bytes);  // of the memory: huge pages where they fit
  // Bytes between the start of its pages and that of a block. Loops go through the blocks of all ranks side by side,
  // and those that begin alike in terms of pages share sets of the caches.
  static std::size_t lead(int index);
  static std::size_t pages_for(std::size_t bytes);  // in bytes: of a block, wherever in its pages it begins

  std::byte* block(int index) const { return pages(index) + lead(index); }
  std::byte* own() const { return block(own_); }
  std::size_t bytes() const { return bytes_; }
  // Makes the pages of a block present here, so that no call pays for it. False: there is no memory for them.
  bool populate(int index) const;

  void release();  // this rank, once; the last one gives the pages back
  bool released_by_all() const { return released().load(std::memory_order_acquire) == blocks_; }

 private:
  std::byte* pages(int index) const { return memory_.data() + static_cast<std::size_t>(index) * stride_; }
  std::atomic<int>& released() const;  // every rank of the node counts itself

  Mapping memory_;
  int blocks_, own_;
  std::size_t bytes_, stride_;
};

// The windows of one communicator: allocated by all ranks in the same order, so numbers mean the same everywhere.
// Allocated and released by any thread, in any order; looked at by the thread that runs calls, without a lock: it keeps
// a list of its own, with what it maps, until it comes round to the next look().
class Windows {
 public:
  // A buffer within this rank's block of a window.
  struct Part {
    std::uint32_t window;
    std::uint64_t offset;
  };

  std::uint32_t add(std::shared_ptr<NodeWindow> window);
  void release(std::uint32_t window);                                // by this rank; stays mapped until all have
  bool any() const { return any_.load(std::memory_order_relaxed); }  // there has ever been one: the same on all ranks

  // Once a call: what find() and at() know of, and what stays mapped for them.
  void look() {
    if (changed_.load(std::memory_order_acquire)) look_again();
  }
  std::optional<Part> find(const void* data, std::size_t bytes) const;
  // So many bytes in the block of `index`; null when there is no such place.
  std::byte* at(int index, Part part, std::size_t bytes) const;

 private:
  struct Entry {
    std::uint32_t id;
    std::shared_ptr<NodeWindow> window;
    bool released = false;  // by this rank
  };
  void look_again();
  void sweep();  // mutex_ held

  std::mutex mutex_;  // guards the next two
  std::vector<Entry> entries_;
  std::uint32_t next_ = 0;
  std::atomic<bool> changed_{false};  // since the last look, or some rank has yet to release what this one has
  std::atomic<bool> any_{false};
  std::vector<Entry> seen_;  // by the last look
};

// Of every rank of the node in every call: with eight of them, sixteen times.
inline std::optional<Windows::Part> Windows::find(const void* data, std::size_t bytes) const {
  const auto* const start = static_cast<const std::byte*>(data);
  for (const Entry& entry : seen_) {
    const std::byte* const block = entry.window->own();
    const std::size_t present = entry.window->bytes();
    if (start < block || bytes > present) continue;
    const auto offset = static_cast<std::size_t>(start - block);
    if (offset <= present - bytes) return Part{entry.id, offset};
  }
  return std::nullopt;
}

inline std::byte* Windows::at(int index, Part part, std::size_t bytes) const {
  for (const Entry& entry : seen_) {
    if (entry.id != part.window) continue;
    const std::size_t present = entry.window->bytes();
    if (bytes > present || part.offset > present - bytes) return nullptr;
    return entry.window->block(index) + part.offset;
  }
  return nullptr;
}

}  // namespace rondo::comm
