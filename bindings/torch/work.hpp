// SPDX-License-Identifier: Apache-2.0
// One call of torch.distributed on its way.
#pragma once
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "bindings/torch/completer.hpp"
#include "bindings/torch/hooks.hpp"

namespace rondo::torch_backend {

// "rondo:all_reduce", for profilers; lives for ever.
const char* title_of(std::string_view backend, std::string_view name);

class RondoWork final : public c10d::Work {
 public:
  using Clock = std::chrono::steady_clock;
  struct About {
    int rank = -1;
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = nullptr;
    std::uint64_t sequence = 0;
    std::chrono::milliseconds timeout{};
    std::vector<at::Tensor> outputs{};
    c10::Device device = c10::kCPU;
  };
  // What the works of a group share; it may outlive the group.
  struct Group {
    Completer completer;
    Hooks hooks;
  };
  RondoWork(const About& about, const std::vector<at::Tensor>& inputs, std::shared_ptr<Group> group);
  ~RondoWork() override;

  // Once, from any thread, which runs no callback: wakes who waits, or, where somebody has asked for the future, lets
  // the completer complete it and then wake who waits, so that both find it done.
  void complete(std::exception_ptr error);
  // The same for a call that was not started at all.
  void fail_at_start(const std::exception_ptr& error) {
    failed_at_start_ = error;
    complete(error);
  }
  // On a device: it is on `stream` now, the current one, so its future is complete, and who waits for it makes a stream
  // wait. complete() comes when it is done.
  void enqueued(const c10::Stream& stream);
  std::exception_ptr failed_at_start() const { return failed_at_start_; }  // of the thread that started it
  int* source() { return &source_; }                                       // where a receive writes whom it was from

  bool wait(std::chrono::milliseconds timeout) override;  // on a device, without a timeout, the current stream waits
  void synchronize() override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return about_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;  // milliseconds, of a call that is done
  std::uint64_t getSequencenumber() const override { return about_.sequence; }
  std::chrono::milliseconds getTimeout() const override { return about_.timeout; }
  std::uint64_t getCompletionKey() const override { return key_; }
  void abort() override;

 private:
  void mark();
  void tell();

  About about_;
  const std::shared_ptr<Group> group_;
  const std::uint64_t key_;  // no other call's of this process
  const bool has_on_completion_ = group_->hooks.has_on_completion();
  const int depth_ = Completer::depth();
  std::mutex future_mutex_;                         // of the four below
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // null until somebody asks for it
  struct Place {
    c10::Stream stream;
    c10::Event passed;
  };
  std::optional<Place> place_;  // on a device, where it is enqueued
  bool has_ended_ = false;
  std::exception_ptr error_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point finished_{};  // guarded by the base's mutex
  std::exception_ptr failed_at_start_;
  int source_ = -1;
};

}  // namespace rondo::torch_backend
