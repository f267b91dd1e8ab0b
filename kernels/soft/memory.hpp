// SPDX-License-Identifier: Apache-2.0
// All memory that the runtime knows of, found by any address in it.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <optional>

#include "kernels/soft/pinned_pages.hpp"
#include "kernels/soft/shared_memory.hpp"

namespace rondo::soft {

struct Device;

struct Allocation {
  enum class Kind { device, imported, pinned, registered };
  Kind kind;
  std::size_t bytes;
  Device* device;  // whose memory; imported: where it was opened; host memory: current at the time
  std::optional<SharedMemory> shared = {};  // device and imported
  std::optional<PinnedPages> pinned = {};
  bool exportable = true;
  int opened = 1;  // imported: so many times

  bool is_host() const { return kind == Kind::pinned || kind == Kind::registered; }
};

class Memory {
 public:
  struct Found {
    std::byte* base;
    Allocation* allocation;
    explicit operator bool() const { return allocation != nullptr; }
  };
  Found find(const void* address);                     // null allocation: not ours
  Allocation* at_base(const void* base);               // null: not the base of one
  bool holds(const void* address, std::size_t bytes);  // all of it, in one allocation
  bool overlaps(const void* address, std::size_t bytes);
  Found find_import(std::uint64_t identity, const Device& device);
  void add(std::byte* base, Allocation allocation);
  void remove(std::byte* base);  // unmaps it
  bool empty() const { return allocations_.empty(); }

 private:
  std::map<std::byte*, Allocation> allocations_;
};

}  // namespace rondo::soft
