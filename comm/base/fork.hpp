// SPDX-License-Identifier: Apache-2.0
// What a child of fork() does with its copies. It runs none of its parent's threads, and the connections and shared
// words that it holds are its parent's: so objects know which process made them, and in a child they refuse calls and
// are forgotten instead of destroyed. Descriptors whose end tells peers that a process has ended are closed there.
// vfork() and posix_spawn() do not come here, nor does clone() by hand.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace rondo {

namespace forks {

// How many lie between the process that loaded the library and this one.
extern constinit std::atomic<std::uint32_t> count;
// Keeps a forgotten object reachable, or LeakSanitizer would complain in every child.
void forget(void* object);

}  // namespace forks

// A member of what must not be used in a child. The question costs a load of a word that only forks write.
class Origin {
 public:
  bool is_here() const { return made_after_ == forks::count.load(std::memory_order_relaxed); }

 private:
  std::uint32_t made_after_ = forks::count.load(std::memory_order_relaxed);
};

// Owns an object that only the process that made it may destroy.
template <class T>
class OfThisProcess {
 public:
  explicit OfThisProcess(std::unique_ptr<T> object) : object_(std::move(object)) {}
  ~OfThisProcess() {
    if (!origin_.is_here()) forks::forget(object_.release());
  }
  OfThisProcess(const OfThisProcess&) = delete;
  OfThisProcess& operator=(const OfThisProcess&) = delete;
  T* operator->() const { return object_.get(); }
  T& operator*() const { return *object_; }
  bool is_here() const { return origin_.is_here(); }

 private:
  Origin origin_;
  std::unique_ptr<T> object_;
};

// Of a descriptor's number, while it is open: a child closes it. Who closes it here takes the mark off first.
void mark_for_children(int fd);
void unmark_for_children(int fd);

// Marks a descriptor that another object owns; declare it after that one.
class ClosedInChildren {
 public:
  explicit ClosedInChildren(int fd) : fd_(fd) { mark_for_children(fd_); }
  ~ClosedInChildren() { reset(); }
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;
  void reset() { unmark_for_children(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

}  // namespace rondo
