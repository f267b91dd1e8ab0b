// SPDX-License-Identifier: Apache-2.0
// Messages that one call has started, and the Work that stands for them.
#pragma once
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/call/engine.hpp"
#include "comm/messages/envelope.hpp"

namespace rondo::comm {

class Batch;

// A send or a receive. Its batch owns it; whoever holds the Messages' mutex uses it.
struct Operation {
  explicit Operation(const Call& call);
  bool takes(int sender, int its_tag) const { return tag == its_tag && (peer == sender || peer == kAnySource); }
  // Whom it waits for; kAnySource: nobody in particular.
  int other() const { return from_rank >= 0 ? from_rank : peer; }
  Signature signature() const { return {.count = count, .collective = Collective::send, .dtype = dtype, .root = tag}; }
  std::string describe() const;  // "recv of 4 f32 from rank 1, tag 7"

  bool sends;
  int peer, tag;
  DataType dtype;
  std::uint64_t count, bytes;
  const std::byte* from;
  std::byte* to;
  int* source;  // where to say whom it was from
  Batch* batch = nullptr;
  std::uint64_t id = 0, sequence = 0;  // of a send
  std::uint64_t done = 0;              // bytes
  int from_rank = -1;                  // of a receive that has its message
  std::uint64_t record = 0;            // in the flight record
  bool finished = false;
};

class Batch final : public detail::WorkState {
 public:
  using Clock = std::chrono::steady_clock;
  // one: a message, whose source is told; blocking: nobody has it as a Work.
  enum class Kind : std::uint8_t { one, many, blocking };
  void begin(std::span<const Call> calls, std::chrono::milliseconds timeout, Kind how);
  void mind_time(Clock::time_point now);  // the first one is when it began
  void excuse(Clock::duration stood_still);

  void wait() override;
  bool wait_for(std::chrono::milliseconds duration) override;
  bool done() override;
  std::exception_ptr error() override;
  Work::Times times() override;
  int source() override;
  void on_done(Callback callback) override;

  // Once all of it is done or has failed; runs callbacks.
  void finish();

  // The calling thread runs callbacks of messages, and nobody would move them meanwhile.
  class Callbacks {
   public:
    Callbacks();
    ~Callbacks();
    Callbacks(const Callbacks&) = delete;
    Callbacks& operator=(const Callbacks&) = delete;

   private:
    bool before_;
  };

  // Under the mutex of the Messages:
  std::vector<Operation> operations{};  // as many as in the beginning
  std::size_t left = 0;                 // that are not finished
  Kind kind = Kind::many;
  bool settled = false, reported = false;
  std::exception_ptr failure{};
  std::chrono::milliseconds timeout{};
  Clock::time_point started{}, deadline{};  // once somebody has looked at the time
  std::list<std::shared_ptr<Batch>>::iterator place{};

 private:
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  std::exception_ptr error_;
  std::vector<Callback> callbacks_;
  Work::Times times_{};
};

// Two Works in one: done when both are.
std::shared_ptr<detail::WorkState> both(std::shared_ptr<detail::WorkState> one,
                                        std::shared_ptr<detail::WorkState> other);

}  // namespace rondo::comm
