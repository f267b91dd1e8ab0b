// SPDX-License-Identifier: Apache-2.0
// Threads that complete futures. What hangs on a future is a user's code: it starts calls of the group and waits for
// them, so it must not run in a thread that such a call needs.
#pragma once
#include <functional>
#include <memory>

namespace rondo::torch_backend {

// Any thread may call it. Jobs of one depth run one at a time in the order in which they came. Where one takes longer
// than a second, because it waits for what stands behind it, the next runs beside it. Its threads are made when they
// are needed, and are its own until it goes.
class Completer {
 public:
  Completer();
  ~Completer() { close(); }
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;

  // 0, and within a job one more than the job's. A call that a job starts completes at that depth: by another thread
  // than the one that may wait for it.
  static int depth();
  void post(int depth, std::function<void()> job);
  // Waits for the jobs that are left, all but the one that it is called from. What comes later runs in its caller's
  // thread. In a child of fork() it does nothing.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace rondo::torch_backend
