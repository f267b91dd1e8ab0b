// SPDX-License-Identifier: Apache-2.0
// One call of torch.distributed on its way.
#pragma once
#include <chrono>
#include <string_view>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

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
  };
  RondoWork(const About& about, const std::vector<at::Tensor>& inputs);

  // Once, from any thread: wakes who waits, and runs what hangs on the future.
  void complete(std::exception_ptr error);
  // The same for a call that was not started at all.
  void fail_at_start(const std::exception_ptr& error) {
    failed_at_start_ = error;
    complete(error);
  }
  std::exception_ptr failed_at_start() const { return failed_at_start_; }  // of the thread that started it
  int* source() { return &source_; }                                       // where a receive writes whom it was from

  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return about_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  float getDuration() const override;  // milliseconds, of a call that is done
  std::uint64_t getSequencenumber() const override { return about_.sequence; }
  std::chrono::milliseconds getTimeout() const override { return about_.timeout; }
  void abort() override;

 private:
  About about_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point finished_{};  // guarded by the base's mutex
  std::exception_ptr failed_at_start_;
  int source_ = -1;
};

}  // namespace rondo::torch_backend
