// SPDX-License-Identifier: Apache-2.0
#include "comm/device/launch/device_engine.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <numeric>

#include "comm/base/log.hpp"
#include "comm/call/algorithms.hpp"
#include "comm/call/blocks.hpp"
#include "comm/device/launch/device_work.hpp"
#include "comm/device/memory/kept.hpp"

namespace rondo::comm::device {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kPatience = 1000ms;  // with kernels that are nearly done

bool is_message(const Call& call) { return rondo::row_of(call.collective).is_message(); }

}  // namespace

DeviceEngine::DeviceEngine(Parts parts)
    : parts_(std::move(parts)),
      api_(*parts_.api),
      rank_(parts_.team->rank()),
      berth_(parts_.regions->reservation().berth()),
      last_(make_event(api_, parts_.device.index)),
      captured_(make_event(api_, parts_.device.index)),
      way_(api_, parts_.device.index, parts_.regions->cards().settings()),
      watcher_([this] {
        const bool busy = inspect();
        return tell_works(false) || busy;
      }) {
  status_->engine = this;
  if (!way_.no_early_launch().empty())
    log::info("rank {}: kernels do not begin early: {}", rank_, way_.no_early_launch());
  if (!way_.no_sync_domain().empty())
    log::info("rank {}: kernels are in the domain of all others: {}", rank_, way_.no_sync_domain());
  if (parts_.shares_process) traffic_.emplace(api_);
  if (!parts_.shares_default_stream) return;
  own_stream_ = make_stream(api_, parts_.device.index);
  default_passed_ = make_event(api_, parts_.device.index);
}

DeviceEngine::~DeviceEngine() {
  const int device = parts_.device.index;
  bool idle = await_idle(kPatience);
  if (!idle) {
    parts_.team->fail(ErrorCode::aborted, rank_,
                      fmt::format("rank {} destroyed its communicator while its kernels were running", rank_));
    abort();
    idle = await_idle(kDrain);
  }
  watcher_.stop();
  inspect();
  {
    const std::lock_guard lock(status_->mutex);
    status_->engine = nullptr;
    if (parts_.team->failure().raised()) status_->error = std::make_exception_ptr(parts_.team->failure().error());
    status_->spare.clear();
  }
  tell_works(true);
  berth_->forget(this);
  const bool kept = !idle || *graphs_ != 0;
  if (kept) abort();  // what still runs, or is replayed, ends at once
  if (idle && traffic_) traffic_->end();
  if (kept && parts_.levels) parts_.levels->keep();
  if (kept && parts_.host_way) parts_.host_way->keep();
  if (!kept) return;
  log::error("rank {}: {} {} {} the communicator: its device memory is kept until the process ends", rank_, api_.name,
             device, idle ? "has live graphs with calls of" : "is still busy with");
  parts_.proxy.reset();  // its thread uses the team, which goes
  keep_for_good({std::move(parts_.windows), std::move(parts_.regions), std::move(own_stream_)});
}

void DeviceEngine::check(cudaError_t code, std::string_view what) const {
  device::check(api_, code, parts_.device.index, what);
}

void DeviceEngine::await_event(cudaStream_t stream, cudaEvent_t event, std::string_view what) {
  check(api_.StreamWaitEvent(stream, event, 0), what);
  behind_event_ = true;
}

bool DeviceEngine::is_capturing(cudaStream_t stream) const {
  if (stream == nullptr) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(api_.StreamIsCapturing(stream, &status), "looking at a stream");
  return status != cudaStreamCaptureStatusNone;
}

// The default stream of a device that ranks of one process share would make their kernels wait for each other. Ours
// waits for what is on it, but it does not wait for ours: synchronize() does.
cudaStream_t DeviceEngine::stream_of(rondo::Stream stream) {
  if (stream != nullptr || !own_stream_) return static_cast<cudaStream_t>(stream);
  check(api_.EventRecord(default_passed_.get(), nullptr), "recording an event");
  await_event(own_stream_.get(), default_passed_.get(), "waiting for the default stream");
  return own_stream_.get();
}

void DeviceEngine::validate(std::span<const Call> calls) {
  const DeviceScope scope(api_, parts_.device.index);
  for (const Call& call : calls) {
    if (call.stream != calls.front().stream) {
      throw Error(ErrorCode::invalid_argument, "the calls of a group must be on one stream");
    }
    check_buffers(call);
  }
  if (!calls.empty() && takes_turns() && is_capturing(static_cast<cudaStream_t>(calls.front().stream)))
    refuse_capture();
}

void DeviceEngine::refuse_capture() const {
  throw Error(ErrorCode::unsupported,
              fmt::format("rank {}: {} device {} has too few blocks for all communicators, so calls of this one take "
                          "turns with those of others, and a graph's could not: capture calls of communicators that "
                          "were made earlier, or destroy some",
                          rank_, api_.name, parts_.device.index));
}

void DeviceEngine::check_buffers(const Call& call) {
  const CollectiveRow& row = rondo::row_of(call.collective);
  const bool at_root = call.root == rank_;
  const auto bytes = [&](Extent extent, std::span<const std::size_t> counts) {
    std::size_t count = call.count;
    if (extent == Extent::world) count *= static_cast<std::size_t>(parts_.terms.world_size);
    if (extent == Extent::counts) count = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    return count * size_of(call.dtype);
  };
  if (row.send != Extent::none && (!row.send_at_root || at_root))
    check_buffer(call, call.send, bytes(row.send, call.send_counts), "send");
  if (row.recv != Extent::none && (!row.recv_at_root || at_root))
    check_buffer(call, call.recv, bytes(row.recv, call.recv_counts), "receive");
}

// Asking the runtime costs more than the launch of a small call may, so buffers that were right are remembered.
void DeviceEngine::check_buffer(const Call& call, const void* data, std::size_t bytes, std::string_view name) {
  KnownBuffer& known = known_buffers_[reinterpret_cast<std::uintptr_t>(data) / 256 % known_buffers_.size()];
  if (data == nullptr || (data == known.data && bytes <= known.room)) return;
  cudaPointerAttributes attributes{};
  const cudaError_t code = api_.PointerGetAttributes(&attributes, data);
  if (code != cudaSuccess) api_.GetLastError();
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the {} buffer {}", rondo::name_of(call.collective), name, why));
  };
  if (code != cudaSuccess || attributes.type == cudaMemoryTypeUnregistered) {
    refuse(fmt::format("is host memory, and the communicator is on {} device {}", api_.name, parts_.device.index));
  }
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != parts_.device.index) {
    refuse(fmt::format("lies on {} device {}, and the communicator is on device {}", api_.name, attributes.device,
                       parts_.device.index));
  }
  std::size_t room = SIZE_MAX;  // where nobody knows
  void* base = nullptr;
  bool exportable = false;
  if (attributes.type == cudaMemoryTypeDevice &&
      api_.MemGetAllocation(&base, &room, &exportable, data) == cudaSuccess) {
    room -= static_cast<std::size_t>(static_cast<const std::byte*>(data) - static_cast<const std::byte*>(base));
  } else {
    room = SIZE_MAX;
  }
  // What another than cudaMalloc made may be mapped piece by piece, and go on behind the piece.
  if (!exportable) room = SIZE_MAX;
  if (bytes > room)
    refuse(fmt::format("of {} bytes goes past the end of its memory, where {} bytes are left", bytes, room));
  known = {data, room};
}

// Until its kernels are known to be launched, they count as running.
class DeviceEngine::Launching {
 public:
  explicit Launching(DeviceEngine& engine) : engine_(engine) {
    if (!engine_.traffic_) return;
    const std::lock_guard lock(engine_.inspecting_);
    ++engine_.launching_;
    engine_.traffic_->begin();
  }
  ~Launching() {
    if (!engine_.traffic_) return;
    const std::lock_guard lock(engine_.inspecting_);
    --engine_.launching_;
  }
  Launching(const Launching&) = delete;
  Launching& operator=(const Launching&) = delete;

 private:
  DeviceEngine& engine_;
};

void DeviceEngine::run(std::span<const Call> calls, std::chrono::milliseconds timeout) {
  if (calls.empty()) return;
  const DeviceScope scope(api_, parts_.device.index);
  cudaStream_t stream = stream_of(calls.front().stream);
  timeout_ms_ = timeout.count();
  const Launching launching(*this);
  capturing_ = is_capturing(stream);
  if (capturing_) {
    parts_.team->close_device_history();
    numbers_.close();
    hold_in_graph(stream);
    enqueue_in_capture(calls, stream, timeout);
  } else {
    enqueue_in_turn(calls, stream, timeout);
  }
  if (parts_.proxy) parts_.proxy->launched();
  watcher_.wake();
}

// All launches of a communicator use the same counters, so they run one after the other; and so do those of
// communicators that have the same blocks.
void DeviceEngine::enqueue_in_turn(std::span<const Call> calls, cudaStream_t stream,
                                   std::chrono::milliseconds timeout) {
  Berth::Turn turn(*berth_, this);
  if (launches_ != 0 && last_stream_ != stream) {
    await_event(stream, last_.get(), "waiting for another stream");
  }
  if (cudaEvent_t before = turn.before(); before != nullptr) {
    await_event(stream, before, "waiting for another communicator");
  }
  enqueue(calls, stream, timeout);
  check(api_.EventRecord(last_.get(), stream), "recording an event");
  turn.launched(last_.get());
  const std::lock_guard lock(enqueued_);
  last_stream_ = stream;
  ++launches_;
}

// Of one capture; replays of several graphs, and calls beside them, are the caller's to order.
void DeviceEngine::enqueue_in_capture(std::span<const Call> calls, cudaStream_t stream,
                                      std::chrono::milliseconds timeout) {
  unsigned long long capture = 0;
  check(api_.StreamCaptureId(stream, &capture), "capturing");
  if (capture != capture_) failed_word_ = nullptr;  // when it is replayed, others will have been used last
  if (capture == capture_ && captured_stream_ != stream) {
    await_event(stream, captured_.get(), "waiting for another captured stream");
  }
  enqueue(calls, stream, timeout);
  check(api_.EventRecord(captured_.get(), stream), "capturing");
  capture_ = capture;
  captured_stream_ = stream;
}

// The launches of the whole are in order, and so are those of its levels.
void DeviceEngine::run_part(std::span<const Call> calls, const Signature& whole, cudaStream_t stream,
                            std::chrono::milliseconds timeout) {
  timeout_ms_ = timeout.count();
  const Launching launching(*this);
  const bool captures = is_capturing(stream);
  if (captures) {
    numbers_.close();
    hold_in_graph(stream);
  }
  whole_ = &whole;
  enqueue(calls, stream, timeout);  // where it throws, the communicator has failed
  if (!captures) {
    check(api_.EventRecord(last_.get(), stream), "recording an event");
    const std::lock_guard lock(enqueued_);
    last_stream_ = stream;
    ++launches_;
  }
  if (parts_.proxy) parts_.proxy->launched();
  watcher_.wake();
}

std::string_view DeviceEngine::kernel_for(const Call& call) const {
  return name_of(choose(shape_of(call, parts_.terms.world_size), parts_.terms).kernel);
}

void DeviceEngine::enqueue(std::span<const Call> calls, cudaStream_t stream, std::chrono::milliseconds timeout) {
  Batch batch(*parts_.regions, windows_in_use(), timeout);
  if (*graphs_ != 0) batch.guard();
  std::vector<Call> messages;
  for (const Call& call : calls) {
    if (is_message(call)) messages.push_back(call);
  }
  if (messages.size() > static_cast<std::size_t>(kernels::device::kMaxMessages)) {
    messages = in_launch_order(messages, rank_, parts_.terms.world_size);
  }
  for (const Call& call : messages) add(batch, call, stream, timeout);
  for (const Call& call : calls) {
    if (!is_message(call)) add(batch, call, stream, timeout);
  }
  if (!batch.empty()) launch(batch, stream);
}

void DeviceEngine::add(Batch& batch, const Call& call, cudaStream_t stream, std::chrono::milliseconds timeout) {
  const bool message = is_message(call);
  const bool by_host = !message && parts_.host_way && parts_.host_way->takes(call);
  // The host does not know when a graph is replayed.
  if (by_host && !capturing_) {
    if (!batch.empty()) launch(batch, stream);
    return add_by_host(call, stream, timeout);
  }
  if (!message && parts_.levels && parts_.levels->why_not(call).empty()) {
    if (!batch.empty()) launch(batch, stream);
    return add_levels(call, stream, timeout);
  }
  const Choice choice = message ? choose_for_message(call.count * size_of(call.dtype), parts_.terms)
                                : choose(shape_of(call, parts_.terms.world_size), parts_.terms);
  if (!batch.takes(call, choice)) launch(batch, stream);
  if (whole_ != nullptr) {
    batch.add_collective(call, choice, *whole_);
    return numbers_.note(whole_->sequence);
  }
  Signature signature = message ? signature_of_message(call) : signature_of(call);
  if (message) {
    parts_.team->note_device_message(call.root, call.collective == Collective::send);
    batch.add_message(call, choice, signature);
  } else {
    batch.add_collective(call, choice, signature);
    signature.sequence = ++calls_;
    if (parts_.levels) numbers_.note(calls_);
    note(signature, choice.kernel);
    if (by_host) note_way(signature);
    explain_choice(call, choice);
  }
  parts_.recorder->begin(signature, choice.algorithm, name_of(choice.kernel));
  parts_.recorder->end();
}

// Windows and pushes bring all ranks together, and so does what needs data of all. Before the first such call after
// others, these are compared: either of two ranks is the second to come here, and launches after it has looked.
void DeviceEngine::note(const Signature& signature, KernelKind kernel) {
  parts_.team->note_device_call(signature);
  const CollectiveRow& row = rondo::row_of(signature.collective);
  const bool moves_nothing = signature.count == 0 && row.send != Extent::none;
  const bool meets = kernel == KernelKind::window || kernel == KernelKind::push;
  const bool alone = !meets && (row.rooted || moves_nothing);
  // What goes by the host meets no kernel, which would find out.
  if (parts_.host_way || (!alone && may_be_alone_)) {
    if (const Difference difference = parts_.team->find_device_disagreement(); !difference.empty())
      throw parts_.team->judge(difference);
  }
  may_be_alone_ = alone;
}

void DeviceEngine::note_way(const Signature& signature) {
  const Difference difference = parts_.team->note_device_way(signature, capturing_);
  if (!difference.empty()) throw parts_.team->judge(difference);
}

// Both are made where somebody hears them.
template <class Way, class Why>
void DeviceEngine::explain(const Call& call, Way way, Why why) {
  if (!parts_.choices->speaks()) return;
  const std::size_t bytes = larger_count(call, parts_.terms.world_size) * size_of(call.dtype);
  parts_.choices->explain(call.collective, bytes, way(), why);
}

void DeviceEngine::explain_choice(const Call& call, const Choice& choice) {
  explain(
      call, [&] { return fmt::format("{} by {}", choice.algorithm, name_of(choice.kernel)); },
      [&] {
        const std::string_view flat = parts_.levels ? parts_.levels->why_not(call) : "";
        return flat.empty() ? std::string(choice.why) : fmt::format("{}; not in two levels: {}", choice.why, flat);
      });
}

void DeviceEngine::add_by_host(const Call& call, cudaStream_t stream, std::chrono::milliseconds timeout) {
  Signature signature = signature_of(call);
  signature.sequence = ++calls_;
  note(signature, KernelKind::simple);
  note_way(signature);
  parts_.recorder->begin(signature, HostWay::kName, "copies");
  parts_.host_way->enqueue(call, stream, timeout);
  parts_.recorder->end();
  explain(
      call, [] { return HostWay::kName; },
      [&] {
        return parts_.terms.protocol == HostWay::kName
                   ? std::string("it was asked for")
                   : std::string("processes take turns on a device; up to device_host_bytes");
      });
}

// A rank may be through before all have come, as over links.
void DeviceEngine::add_levels(const Call& call, cudaStream_t stream, std::chrono::milliseconds timeout) {
  Signature signature = signature_of(call);
  signature.sequence = ++calls_;
  note(signature, KernelKind::simple);
  parts_.recorder->begin(signature, kTwoLevel.name, parts_.levels->kernels_of(call));
  parts_.levels->run(call, signature, stream, timeout,
                     [&](std::byte* failed_word) { pass_failure_to(failed_word, stream); });
  parts_.recorder->end();
  explain(
      call, [&] { return fmt::format("{} by {}", kTwoLevel.name, parts_.levels->kernels_of(call)); },
      [] { return std::string("ranks of a node reach each other's memory"); });
}

// A kernel that gave up leaves a word, at which later ones in the same regions do nothing. In others they would go on
// with what it has not done, and their peers would take it for right.
void DeviceEngine::pass_failure_to(std::byte* failed_word, cudaStream_t stream) {
  if (failed_word_ != nullptr && failed_word_ != failed_word) {
    check(api_.MemcpyAsync(failed_word, failed_word_, sizeof(std::uint64_t), cudaMemcpyDefault, stream),
          "passing a word on");
  }
  failed_word_ = failed_word;
}

void DeviceEngine::launch(Batch& batch, cudaStream_t stream) {
  if (parts_.levels) pass_failure_to(failed_word(), stream);
  check(way_.launch(batch.kind(), batch.kernel(api_.kernels), batch.blocks(), batch.threads(), batch.argument(), stream,
                    std::exchange(behind_event_, false)),
        "launching a kernel");
  batch.clear();
}

// The graph keeps a count up for as long as it, or anything made from it, lives. Its callback may not call CUDA.
void DeviceEngine::hold_in_graph(cudaStream_t stream) {
  struct Hold {
    std::shared_ptr<std::atomic<int>> graphs;
    std::shared_ptr<Berth> berth;
    Hold(std::shared_ptr<std::atomic<int>> graphs_held, std::shared_ptr<Berth> berth_held)
        : graphs(std::move(graphs_held)), berth(std::move(berth_held)) {
      ++*graphs;
    }
    ~Hold() {
      berth->release_from_graph();
      --*graphs;
    }
  };
  if (!berth_->hold_for_graph()) refuse_capture();
  auto hold = std::make_unique<Hold>(graphs_, berth_);
  const auto let_go = [](void* raw) { const std::unique_ptr<Hold> owned(static_cast<Hold*>(raw)); };
  cudaUserObject_t object = nullptr;
  check(api_.UserObjectCreate(&object, hold.get(), let_go, 1, cudaUserObjectNoDestructorSync), "capturing");
  hold.release();  // NOLINT(bugprone-unused-return-value): the object's now
  const cudaError_t retained = api_.StreamRetainInCapture(stream, object);
  api_.UserObjectRelease(object, 1);
  check(retained, "capturing");
}

std::shared_ptr<rondo::detail::WorkState> DeviceEngine::start(std::span<const Call> calls,
                                                              std::chrono::milliseconds timeout) {
  run(calls, timeout);
  const DeviceScope scope(api_, parts_.device.index);
  const rondo::Stream given = calls.empty() ? nullptr : calls.front().stream;
  cudaStream_t stream = given == nullptr && own_stream_ ? own_stream_.get() : static_cast<cudaStream_t>(given);
  return std::make_shared<DeviceWork>(status_, api_, parts_.device.index, stream);
}

void DeviceEngine::synchronize(rondo::Stream stream, std::chrono::milliseconds patience) {
  const DeviceScope scope(api_, parts_.device.index);
  cudaStream_t on = stream == nullptr && own_stream_ ? own_stream_.get() : static_cast<cudaStream_t>(stream);
  std::optional<Clock::time_point> failed;
  const bool passed = poll_for(patience, [&] {
    const cudaError_t code = api_.StreamQuery(on);
    if (code != cudaErrorNotReady) {
      check(code, "waiting for a stream");
      return true;
    }
    if (!parts_.team->failure().raised()) return false;
    if (!failed) failed = Clock::now();
    return Clock::now() - *failed > kDrain;  // busy with something else than our kernels
  });
  inspect();
  parts_.team->failure().check();
  if (!passed) {
    throw Error(ErrorCode::timeout, fmt::format("rank {}: the stream is still busy after {:.1f} s", rank_,
                                                static_cast<double>(patience.count()) / 1e3));
  }
}

void DeviceEngine::abort() {
  std::atomic_ref(parts_.regions->page().abort).store(1, std::memory_order_release);
  if (parts_.levels) parts_.levels->abort();
  if (parts_.host_way) parts_.host_way->abort();
}

}  // namespace rondo::comm::device
