// SPDX-License-Identifier: Apache-2.0
#include "comm/node/memory/windows.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/team/segment.hpp"

namespace rondo::comm {
namespace {

constexpr std::size_t kHugePage = 2 << 20;
// Eight blocks are 8 lines or more apart: what a loop has stored in one is then out of the way of what it loads from
// the next, though a processor takes them for the same place while it knows the lower bits of addresses alone.
constexpr std::size_t kLeads = 8, kLead = 1536;

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

NodeWindow::NodeWindow(Mapping memory, int blocks, int own, std::size_t bytes)
    : memory_(std::move(memory)), blocks_(blocks), own_(own), bytes_(bytes), stride_(pages_for(bytes)) {
#if defined(MADV_HUGEPAGE)
  if (alignment(bytes) == kHugePage) {  // only advice
    static_cast<void>(::madvise(memory_.data(), static_cast<std::size_t>(blocks_) * stride_, MADV_HUGEPAGE));
  }
#endif
}

std::size_t NodeWindow::alignment(std::size_t bytes) { return bytes >= kHugePage ? kHugePage : page_bytes(); }

std::size_t NodeWindow::lead(int index) { return static_cast<std::size_t>(index) % kLeads * kLead; }

std::size_t NodeWindow::pages_for(std::size_t bytes) {
  return round_up(std::max<std::size_t>(bytes, 1) + (kLeads - 1) * kLead, page_bytes());
}

std::size_t NodeWindow::total_bytes(int blocks, std::size_t bytes) {
  return static_cast<std::size_t>(blocks) * pages_for(bytes) + kLine;
}

bool NodeWindow::populate(int index) const {
#if defined(MADV_POPULATE_WRITE)
  if (::madvise(pages(index), stride_, index == own_ ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) return true;
  if (errno != EINVAL) return false;
#endif
  if (index == own_) std::memset(block(index), 0, bytes_);  // a kernel without it: touched one by one
  return true;
}

std::atomic<int>& NodeWindow::released() const { return *reinterpret_cast<std::atomic<int>*>(pages(blocks_)); }

// Mappings go one by one, as ranks come round to it; the pages go now.
void NodeWindow::release() {
  if (released().fetch_add(1, std::memory_order_acq_rel) + 1 != blocks_) return;
#if defined(MADV_REMOVE)
  static_cast<void>(::madvise(memory_.data(), static_cast<std::size_t>(blocks_) * stride_, MADV_REMOVE));
#endif
}

std::uint32_t Windows::add(std::shared_ptr<NodeWindow> window) {
  const std::lock_guard lock(mutex_);
  sweep();
  entries_.push_back({next_, std::move(window)});
  changed_.store(true, std::memory_order_release);
  any_.store(true, std::memory_order_relaxed);
  return next_++;
}

void Windows::release(std::uint32_t window) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.id == window; });
  if (found == entries_.end()) return;
  found->released = true;
  found->window->release();
  sweep();
  changed_.store(true, std::memory_order_release);
}

void Windows::look_again() {
  const std::lock_guard lock(mutex_);
  sweep();
  seen_ = entries_;
  changed_.store(std::ranges::any_of(entries_, &Entry::released), std::memory_order_relaxed);
}

void Windows::sweep() {
  std::erase_if(entries_, [](const Entry& e) { return e.window->released_by_all(); });
}

}  // namespace rondo::comm
