// SPDX-License-Identifier: Apache-2.0
#include "comm/device/host/host_way.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/base/duration.hpp"
#include "comm/base/system_error.hpp"
#include "comm/call/blocks.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/device/launch/device_engine.hpp"
#include "comm/device/memory/cuda_handles.hpp"
#include "kernels/thread.hpp"

namespace rondo::comm::device {
namespace {

// What a stream waits for: that the host is through with so many calls. Shared with the functions on streams, which may
// outlive the communicator where a device stays busy.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t done = 0;
  bool open = false;  // for good

  void pass(std::uint64_t calls) {
    const std::lock_guard lock(mutex);
    done = calls;
    changed.notify_all();
  }
  void open_for_good() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
};

struct Ticket {
  std::shared_ptr<Gate> gate;
  std::uint64_t calls;
};

// On a stream; may not call CUDA. It waits for this rank's own thread alone, which waits for other ranks' copies, and
// for no function of theirs: CUDA may run such functions one after the other.
void wait_at_gate(void* raw) {
  const std::unique_ptr<Ticket> ticket(static_cast<Ticket*>(raw));
  std::unique_lock lock(ticket->gate->mutex);
  ticket->gate->changed.wait(lock, [&] { return ticket->gate->open || ticket->gate->done >= ticket->calls; });
}

}  // namespace

struct HostWay::Impl {
  struct Task {
    OwnedCall call;  // on the pinned memory
    Event arrived;
  };

  Impl(const cuda::Api& table, int index, Communicator of_host, std::size_t most, Fail on_failure)
      : api(table),
        device(index),
        host(std::move(of_host)),
        bytes((most + 255) / 256 * 256),
        fail(std::move(on_failure)),
        memory(allocate_pinned(api, device, 2 * bytes)) {
    worker = start_thread("rondo-host-way", [this] { run(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    more.notify_all();
    worker.join();
    gate->open_for_good();
  }

  void run() {
    for (std::uint64_t calls = 1;; ++calls) {
      std::unique_lock lock(mutex);
      more.wait(lock, [&] { return stopping || !tasks.empty(); });
      if (tasks.empty()) return;
      const Task task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      if (!failed) make(task);
      gate->pass(calls);
    }
  }

  void make(const Task& task) {
    try {
      if (await(task.arrived)) host.submit(task.call.call());
    } catch (const Error& error) {
      failed = true;
      fail(error);
    } catch (const std::exception& error) {
      failed = true;
      fail({ErrorCode::system, fmt::format("rank {}: {}", host.rank(), reason_of(error)), host.rank()});
    }
  }

  // False: what waits is given up.
  bool await(const Event& arrived) const {
    bool there = false;
    poll_for(kForEver, [&] {
      const cudaError_t code = api.EventQuery(arrived.get());
      if (code != cudaErrorNotReady) check(api, code, device, "waiting for a copy to the host");
      there = code == cudaSuccess;
      return there || failed;
    });
    return there;
  }

  const cuda::Api& api;
  int device;
  Communicator host;
  std::size_t bytes;
  Fail fail;
  PinnedMemory memory;  // input, then output
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::atomic<bool> failed{false}, aborted{false};
  std::mutex mutex;  // guards the next two
  std::deque<Task> tasks;
  bool stopping = false;
  std::condition_variable more;
  std::uint64_t enqueued = 0;
  std::thread worker;
};

HostWay::HostWay(const cuda::Api& api, int device, Communicator host, std::size_t bytes, Fail fail)
    : impl_(std::make_unique<Impl>(api, device, std::move(host), bytes, std::move(fail))) {}
HostWay::~HostWay() = default;

bool HostWay::takes(const Call& call) const {
  const CollectiveRow& row = rondo::row_of(call.collective);
  if (row.is_message() || row.has_own_counts()) return false;
  return larger_count(call, impl_->host.world_size()) * size_of(call.dtype) <= impl_->bytes;
}

void HostWay::enqueue(const Call& call, cudaStream_t stream, std::chrono::milliseconds timeout) {
  Impl& way = *impl_;
  const CollectiveRow& row = rondo::row_of(call.collective);
  const int ranks = way.host.world_size();
  const bool at_root = call.root == way.host.rank();
  const bool sends = row.send != Extent::none && (!row.send_at_root || at_root);
  const bool receives = row.recv != Extent::none && (!row.recv_at_root || at_root);
  const std::size_t element = size_of(call.dtype);
  const std::size_t in = sends ? elements_of(call, row.send, call.send_counts, ranks) * element : 0;
  const std::size_t out = receives ? elements_of(call, row.recv, call.recv_counts, ranks) * element : 0;
  std::byte* const from = way.memory.get();
  std::byte* const to = from + way.bytes;
  const auto copy = [&](void* into, const void* of, std::size_t bytes, cudaMemcpyKind kind, const char* what) {
    if (bytes != 0) check(way.api, way.api.MemcpyAsync(into, of, bytes, kind, stream), way.device, what);
  };
  copy(from, call.send, in, cudaMemcpyDeviceToHost, "copying to the host");
  Call on_host = call;
  on_host.send = sends ? from : nullptr;
  on_host.recv = receives ? to : nullptr;
  on_host.stream = nullptr;
  on_host.timeout = timeout;
  Impl::Task task{OwnedCall(on_host), make_event(way.api, way.device)};
  check(way.api, way.api.EventRecord(task.arrived.get(), stream), way.device, "recording an event");
  auto ticket = std::make_unique<Ticket>(Ticket{way.gate, ++way.enqueued});
  {
    const std::lock_guard lock(way.mutex);
    way.tasks.push_back(std::move(task));
  }
  way.more.notify_all();
  check(way.api, way.api.LaunchHostFunc(stream, wait_at_gate, ticket.get()), way.device, "waiting for the host");
  ticket.release();  // NOLINT(bugprone-unused-return-value): the function's now
  copy(call.recv, to, out, cudaMemcpyHostToDevice, "copying from the host");
}

void HostWay::abort() {
  if (!impl_->aborted.exchange(true)) impl_->host.abort();
  impl_->failed = true;
}

std::size_t HostWay::pinned_bytes() const { return 2 * impl_->bytes; }

void HostWay::keep() { impl_->memory.release(); }  // NOLINT(bugprone-unused-return-value)

}  // namespace rondo::comm::device
