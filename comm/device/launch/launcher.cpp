// SPDX-License-Identifier: Apache-2.0
#include "comm/device/launch/launcher.hpp"

#include <algorithm>
#include <tuple>

#include "comm/call/blocks.hpp"
#include "comm/device/launch/signatures.hpp"
#include "kernels/device/window_table.hpp"

namespace rondo::comm::device {
namespace {

using kernels::device::kNoCounts;
using kernels::device::Operation;

std::uint64_t key_of(const Signature& s) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint64_t word : {s.count, pack(s).kind}) hash = (hash ^ word) * 0x100000001b3;
  return hash | 1;  // 0 is never valid
}

// Of kWindowAlgorithms, whose patterns are not always the collective's: a call that moves nothing is a barrier.
kernels::Pattern pattern_of(const Choice& choice) { return kernels::window_algorithm_row(choice.row).pattern; }

// The kernel that is made for it alone, by number; -1: none is.
int special_of(const Call& call, const Choice& choice) {
  const bool is_window = choice.kernel == KernelKind::window;
  if (!is_window && choice.kernel != KernelKind::push) return -1;
  const auto special = is_window ? kernels::device::window_sum_for : kernels::device::push_kernel_for;
  return special(pattern_of(choice), call.dtype, call.op.kind());
}

int counts_needed(const Call& call) { return static_cast<int>(call.send_counts.size() + call.recv_counts.size()); }

}  // namespace

Batch::Batch(const Regions& regions, const Windows& windows, std::chrono::milliseconds timeout)
    : regions_(regions), windows_(windows) {
  launch_.team = regions.team();
  launch_.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
  push_ = regions.push_launch();
  sum_ = regions.window_sum_launch();
  push_.timeout_ns = sum_.timeout_ns = launch_.timeout_ns;
  clear();
}

void Batch::clear() {
  launch_.operations = launch_.messages = push_.operations = sum_.operations = 0;
  blocks_ = threads_ = counts_ = 0;
  special_ = -1;
}

bool Batch::takes(const Call& call, const Choice& choice) const {
  if (empty()) return true;
  if (choice.kernel != kernel_) return false;
  if (!rondo::row_of(call.collective).is_message() && special_of(call, choice) != special_) return false;
  if (is_push()) return push_.operations < kernels::device::kMaxOperations;
  if (is_window_sum()) return sum_.operations < kernels::device::kMaxOperations;
  if (rondo::row_of(call.collective).is_message())
    return launch_.operations == 0 && launch_.messages < kernels::device::kMaxMessages;
  return launch_.operations < kernels::device::kMaxOperations &&
         counts_ + counts_needed(call) <= static_cast<int>(std::size(launch_.counts));
}

void Batch::widen(const Choice& choice) {
  kernel_ = choice.kernel;
  blocks_ = std::max(blocks_, choice.channels);
  threads_ = std::max(threads_, choice.threads);
}

std::int32_t Batch::put_counts(std::span<const std::size_t> counts) {
  if (counts.empty()) return kNoCounts;
  const int first = counts_;
  for (const std::size_t count : counts) launch_.counts[counts_++] = count;
  return first;
}

void Batch::add_collective(const Call& call, const Choice& choice, const Signature& signature) {
  widen(choice);
  Operation operation{.input = static_cast<const std::byte*>(call.send),
                      .output = static_cast<std::byte*>(call.recv),
                      .count = call.count,
                      .factor = call.op.factor(),
                      .signature = pack(signature),
                      .algorithm = choice.row,
                      .root = std::max(call.root, 0),
                      .send_counts = put_counts(call.send_counts),
                      .recv_counts = put_counts(call.recv_counts),
                      .dtype = static_cast<std::uint8_t>(call.dtype),
                      .op = static_cast<std::uint8_t>(call.op.kind()),
                      .reduces = rondo::row_of(call.collective).reduces,
                      .channels = static_cast<std::uint8_t>(choice.channels),
                      .send_window = kNoWindow,
                      .recv_window = kNoWindow,
                      .send_offset = 0,
                      .recv_offset = 0};
  operation.signature.sequence = 0;  // the kernel counts
  if (choice.kernel == KernelKind::window) find_windows(call, choice.stages, operation);
  special_ = special_of(call, choice);
  const std::size_t bytes = call.count * size_of(call.dtype);
  if (is_push()) {
    push_.operation[push_.operations++] = kernels::device::make_push(pattern_of(choice), operation, bytes);
  } else if (is_window_sum()) {
    sum_.operation[sum_.operations++] =
        kernels::device::make_window_sum(operation, bytes, regions_.layout().world_size);
  } else {
    launch_.operation[launch_.operations++] = operation;
  }
}

const void* Batch::kernel(const cuda::Kernels& kernels) const {
  if (is_push()) return kernels.push[special_];
  if (is_window_sum()) return kernels.window_sum[special_];
  return kernel_ == KernelKind::window ? kernels.window : kernels.fifo[static_cast<std::size_t>(kernel_)];
}

void Batch::find_windows(const Call& call, bool stages, Operation& operation) const {
  const CollectiveRow& row = rondo::row_of(call.collective);
  const int world_size = regions_.layout().world_size;
  const std::size_t element = size_of(call.dtype);
  const WindowPlace from =
      windows_.find(call.send, elements_of(call, row.send, call.send_counts, world_size) * element);
  const WindowPlace to = windows_.find(call.recv, elements_of(call, row.recv, call.recv_counts, world_size) * element);
  if (!stages) {
    operation.send_window = from.window;
    operation.send_offset = from.offset;
  }
  operation.recv_window = to.window;
  operation.recv_offset = to.offset;
}

void Batch::add_message(const Call& call, const Choice& choice, const Signature& signature) {
  widen(choice);
  const bool sends = call.collective == Collective::send;
  // A sent message is only read.
  auto* data = static_cast<std::byte*>(sends ? const_cast<void*>(call.send) : call.recv);
  const WindowPlace place =
      sends && choice.refers ? windows_.find(call.send, call.count * size_of(call.dtype)) : WindowPlace{};
  launch_.message[launch_.messages++] = {.data = data,
                                         .bytes = call.count * size_of(call.dtype),
                                         .key = key_of(signature),
                                         .count = signature.count,
                                         .kind = pack(signature).kind,
                                         .offset = place.offset,
                                         .peer = call.root,
                                         .window = static_cast<std::int16_t>(place.window),
                                         .sends = sends,
                                         .channels = static_cast<std::uint8_t>(choice.channels)};
}

std::vector<Call> in_launch_order(std::span<const Call> messages, int rank, int world_size) {
  struct Turn {
    int distance;
    int number;  // among those to, or from, this peer
    int sender;
    const Call* call;
  };
  std::vector<Turn> turns;
  std::vector<int> sent(static_cast<std::size_t>(world_size)), received(static_cast<std::size_t>(world_size));
  for (const Call& call : messages) {
    const bool sends = call.collective == Collective::send;
    const int ahead = sends ? call.root - rank : rank - call.root;
    int& number = (sends ? sent : received)[static_cast<std::size_t>(call.root)];
    turns.push_back({(ahead + world_size) % world_size, number++, sends ? rank : call.root, &call});
  }
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) {
    return std::tie(a.distance, a.number, a.sender) < std::tie(b.distance, b.number, b.sender);
  });
  std::vector<Call> ordered;
  for (const Turn& turn : turns) ordered.push_back(*turn.call);
  return ordered;
}

}  // namespace rondo::comm::device
