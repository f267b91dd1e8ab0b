// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/memory.hpp"

#include <iterator>
#include <utility>

namespace rondo::soft {

Memory::Found Memory::find(const void* address) {
  auto* const at = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  const auto above = allocations_.upper_bound(at);
  if (above == allocations_.begin()) return {nullptr, nullptr};
  auto& [base, allocation] = *std::prev(above);
  if (static_cast<std::size_t>(at - base) >= allocation.bytes) return {nullptr, nullptr};
  return {base, &allocation};
}

Allocation* Memory::at_base(const void* base) {
  const auto at = allocations_.find(const_cast<std::byte*>(static_cast<const std::byte*>(base)));
  return at == allocations_.end() ? nullptr : &at->second;
}

bool Memory::holds(const void* address, std::size_t bytes) {
  const Found place = find(address);
  if (!place) return false;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - place.base);
  return bytes <= place.allocation->bytes - offset;
}

bool Memory::overlaps(const void* address, std::size_t bytes) {
  if (find(address)) return true;
  auto* const at = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  const auto above = allocations_.upper_bound(at);
  return above != allocations_.end() && above->first < at + bytes;
}

Memory::Found Memory::find_import(std::uint64_t identity, const Device& device) {
  for (auto& [base, allocation] : allocations_) {
    const bool imported = allocation.kind == Allocation::Kind::imported && allocation.device == &device;
    if (imported && allocation.shared->name().identity == identity) return {base, &allocation};
  }
  return {nullptr, nullptr};
}

void Memory::add(std::byte* base, Allocation allocation) { allocations_.emplace(base, std::move(allocation)); }

void Memory::remove(std::byte* base) { allocations_.erase(base); }

}  // namespace rondo::soft
