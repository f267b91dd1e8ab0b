// SPDX-License-Identifier: Apache-2.0
// A process group of torch.distributed whose collectives are the library's. Of tensors of the CPU a synchronous call
// runs in the caller's thread, an asynchronous one behind those before it on the communicator's engine thread, messages
// by themselves. Of tensors of a device each is enqueued, on the current stream, asynchronous ones on a stream beside
// it; the first makes a communicator for the device, with all ranks. Any thread may call; calls of several threads are
// in the order in which they arrive. What hangs on a future runs in a thread of the group's own, on a device in the
// thread that enqueued the call or asked for the future, and may start calls of the group and wait for them. A call
// that is wrong by itself throws TypeError or ValueError and changes nothing; what goes wrong between the ranks is a
// DistBackendError that names rank and call, thrown by the call, by wait() and by the future.
#pragma once
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <rondo/communicator.hpp>

#include "bindings/torch/task.hpp"

namespace rondo::torch_backend {

// What may wait for threads that need Python's lock runs without it; set by the module.
extern void (*without_python)(const std::function<void()>& body);

class RondoBackend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Milliseconds = std::chrono::milliseconds;

  struct Options : c10d::Backend::Options {
    explicit Options(Milliseconds patience, std::string name = "rondo")
        : c10d::Backend::Options(std::move(name), patience) {}
    c10::intrusive_ptr<c10d::Backend::Options> clone() const override { return c10::make_intrusive<Options>(*this); }
  };

  // Meets the others in the store, until options->timeout.
  RondoBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~RondoBackend() override;

  const std::string getBackendName() const override { return options_->backend; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(Milliseconds timeout) override;
  std::uint64_t getSequenceNumberForGroup() override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  void eagerConnectSingleDevice(at::Device device) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  // Rank 0 waits for the others, and names those that do not come; the group stays usable.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // What is called in between starts together, messages first.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // What is told of calls that have ended well: PyTorch's flight recorder, and a hook of the user's.
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    works_->hooks.add(id, std::move(hook));
  }
  void unregisterCompletionHook(std::int64_t id) override { works_->hooks.remove(id); }
  void registerOnCompletionHook(Hooks::OnCompletion&& hook) override {
    onCompletionHook_ = hook;  // so that hasHooks() says it
    works_->hooks.set(std::move(hook));
  }
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override {}  // they are timed always

  bool supportsSplitting() const override { return true; }
  // A group of `ranks` of this one that meets in `store`; null for who is none of them.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;

 private:
  Milliseconds timeout_of(Milliseconds given) const;
  Task task(c10d::OpType type, std::string_view name, Milliseconds timeout, bool runs_async) const;
  WorkPtr run(Task task);
  using Steps = std::vector<std::function<void()>>;
  void start(std::vector<Started> tasks, Milliseconds timeout, Steps& then);
  void start_in_turn(std::vector<Started> tasks, Milliseconds timeout, Steps& then);
  static void end(const std::vector<Started>& tasks, int rank, const std::exception_ptr& error);
  void run_in_turn(std::unique_lock<std::mutex>& lock, const Started& one);
  void enqueue(const std::vector<Started>& tasks, Milliseconds timeout);
  void enqueue_on(const c10::Stream& stream, const std::vector<Started>& tasks, Milliseconds timeout);
  Communicator& device_communicator(const c10::Device& device);
  void synchronize_device();
  Communicator& communicator();
  std::exception_ptr error_of(std::string_view name, std::exception_ptr error) const;
  WorkPtr message(std::string_view name, c10d::OpType type, Tensors& tensors, Collective collective, int peer, int tag);

  c10::intrusive_ptr<Options> options_;
  std::shared_ptr<RondoWork::Group> works_ = std::make_shared<RondoWork::Group>();
  const c10::intrusive_ptr<c10d::Store> store_;
  std::mutex device_mutex_;  // of calls on a device, while they are enqueued: the order is one on all streams
  std::optional<c10::Stream> beside_;
  std::mutex mutex_;  // of all below, held for moments
  Communicator communicator_, on_device_;
  std::optional<c10::Device> device_;  // of on_device_
  std::uint64_t sequence_ = 0;
  std::optional<std::vector<Started>> coalescing_;
  bool runs_here_ = false;  // a call in its caller's thread
  struct Deferred {
    std::vector<Started> tasks;
    Milliseconds timeout;
  };
  std::vector<Deferred> deferred_;  // until it has ended
};

}  // namespace rondo::torch_backend
