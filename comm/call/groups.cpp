// SPDX-License-Identifier: Apache-2.0
// Calls that were recorded as a group, run or started together.
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/call/communicator_impl.hpp"

namespace rondo::comm {

OwnedCall::OwnedCall(const Call& from)
    : call_(from),
      send_counts_(from.send_counts.begin(), from.send_counts.end()),
      recv_counts_(from.recv_counts.begin(), from.recv_counts.end()) {}

Call OwnedCall::call() const {
  Call call = call_;
  call.send_counts = send_counts_;
  call.recv_counts = recv_counts_;
  return call;
}

}  // namespace rondo::comm

namespace rondo::detail {
namespace {

std::vector<Call> calls_of(std::span<const comm::OwnedCall> owned) {
  std::vector<Call> calls;
  for (const auto& one : owned) calls.push_back(one.call());
  return calls;
}

// Messages first, all at once, then the collectives in order: the same on every rank, whatever order they were
// recorded in relative to each other.
struct Sorted {
  explicit Sorted(std::span<const comm::OwnedCall> calls) {
    for (const auto& owned : calls) {
      const bool is_message = row_of(owned.call().collective).is_message();
      if (is_message) {
        messages.push_back(owned.call());
      } else {
        collectives.push_back(owned);
      }
    }
  }
  std::vector<Call> messages;
  std::vector<comm::OwnedCall> collectives;
};

}  // namespace

void CommunicatorImpl::run_group(std::span<const comm::OwnedCall> calls) {
  check_process();
  if (device_) return enqueue(calls_of(calls));
  for (const auto& owned : calls) validate(owned.call());
  const Sorted sorted(calls);
  if (sorted.collectives.empty()) {
    if (!sorted.messages.empty()) run_messages(sorted.messages);
    return;
  }
  std::shared_ptr<comm::Batch> batch;
  engine_.in_turn([&] {
    if (!sorted.messages.empty()) batch = start_messages(sorted.messages, false);
    for (const auto& owned : sorted.collectives) execute(owned.call());  // if it throws, the messages have failed too
  });
  if (batch) messages_.wait(*batch);
}

Work CommunicatorImpl::start_group(std::vector<comm::OwnedCall> calls) {
  check_process();
  for (const auto& owned : calls) validate(owned.call());
  if (device_) return start_on_device(calls_of(calls));
  Sorted sorted(calls);
  std::shared_ptr<detail::WorkState> messages, collectives;
  if (!sorted.messages.empty()) messages = start_messages(sorted.messages, false);
  if (!sorted.collectives.empty() || sorted.messages.empty()) {
    collectives = engine_.start([this, all = std::move(sorted.collectives)] {
      for (const auto& owned : all) execute(owned.call());
    });
  }
  return Work(comm::both(std::move(messages), std::move(collectives)));
}

}  // namespace rondo::detail
