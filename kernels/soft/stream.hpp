// SPDX-License-Identifier: Apache-2.0
// A stream: operations done in order by one thread, which starts with the first of them. The thread touches the queue,
// the timeline and what the operations touch.
#pragma once
#include <concepts>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/soft/timeline.hpp"

namespace rondo::soft {

struct Capture;
struct Device;

// What an operation does. `ended`: null, or a word that is 1 when what comes before it on the stream has ended.
struct Work {
  std::function<void(const std::uint32_t* ended)> run;  // empty: only waits
  bool may_begin_early = false;                         // beside the operation before it, if that
  bool lets_next_begin = false;                         // says so

  Work() = default;
  template <std::invocable F>
  Work(F body) : run([body = std::move(body)](const std::uint32_t*) { body(); }) {}
  template <std::invocable<const std::uint32_t*> F>
  Work(F body, bool early, bool lets_next) : run(std::move(body)), may_begin_early(early), lets_next_begin(lets_next) {}
};

struct Operation {
  std::vector<Ticket> after;  // of other streams
  Work work;
};

class Stream {
 public:
  enum class Kind { legacy, blocking, non_blocking };
  Stream(Device& device, Kind kind) : device_(device), kind_(kind) {}
  ~Stream();  // stops it
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }
  Kind kind() const { return kind_; }

  Ticket push(Operation operation);
  Ticket tail() const;        // of what was pushed so far
  void finish();              // no operation will follow: the thread ends after the last
  void drop();                // what has not begun is not done, and nobody waits for it
  void join();                // after drop() or finish()
  bool has_finished() const;  // join() will not wait

  std::shared_ptr<Capture> capture;  // that it takes part in; guarded by Process::mutex

 private:
  void work();
  bool take(Operation& operation);
  bool take_early(Operation& operation);
  void run(const Operation& operation, const std::uint32_t* ended) const;
  bool is_dropping() const;

  Device& device_;
  const Kind kind_;
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Operation> queue_;
  std::uint64_t pushed_ = 0;
  bool finishing_ = false, dropping_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace rondo::soft
