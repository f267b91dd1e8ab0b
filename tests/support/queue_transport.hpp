// SPDX-License-Identifier: Apache-2.0
// A transport of tests alone: ranks that are threads of one process pass steps through queues. It is what a transport
// takes, its two links and a row; and nothing wakes a rank that waits for it.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include <rondo/error.hpp>

#include "comm/transport/handshake.hpp"
#include "comm/transport/transport.hpp"

namespace rondo::test {

// Steps on their way in one direction. Both ends use it under its mutex.
struct StepQueue {
  struct Step {
    comm::StepHeader header;
    std::vector<std::byte> bytes;
  };
  std::mutex mutex;
  std::deque<Step> steps;
  bool sender_left = false, receiver_left = false;
};

[[noreturn]] inline void throw_left(int peer) {
  throw Error(ErrorCode::peer_lost, fmt::format("rank {} has left its queue", peer), peer);
}

class QueueSendLink final : public comm::SendLink {
 public:
  QueueSendLink(std::shared_ptr<StepQueue> queue, int peer, comm::FifoShape shape)
      : queue_(std::move(queue)), peer_(peer), slots_(shape.slots), slot_(shape.slice_bytes) {}
  ~QueueSendLink() override {
    const std::lock_guard lock(queue_->mutex);
    queue_->sender_left = true;
  }
  QueueSendLink(const QueueSendLink&) = delete;
  QueueSendLink& operator=(const QueueSendLink&) = delete;

  bool ready() override {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->steps.size() < slots_) return true;  // who leaves need not have received all: that is told otherwise
    if (queue_->receiver_left) throw_left(peer_);
    return false;
  }
  std::byte* slot() override { return slot_.data(); }
  void publish(const comm::Signature& signature, std::size_t bytes) override { send(signature, slot_.data(), bytes); }
  void send(const comm::Signature& signature, const std::byte* data, std::size_t bytes) override {
    if (bytes > slot_.size()) throw std::logic_error("a step that is longer than the longest");
    const std::lock_guard lock(queue_->mutex);
    queue_->steps.push_back(
        {{.signature = signature, .step = posted_++, .bytes = bytes}, std::vector<std::byte>(data, data + bytes)});
  }
  bool refers_to(const std::byte*, std::size_t) const override { return false; }
  bool flushed() override { return true; }
  comm::Wake wake() const override { return {comm::Wake::By::looking}; }

 private:
  std::shared_ptr<StepQueue> queue_;
  int peer_;
  std::uint64_t slots_, posted_ = 0;
  std::vector<std::byte> slot_;
};

class QueueRecvLink final : public comm::RecvLink {
 public:
  QueueRecvLink(std::shared_ptr<StepQueue> queue, int peer) : queue_(std::move(queue)), peer_(peer) {}
  ~QueueRecvLink() override {
    const std::lock_guard lock(queue_->mutex);
    queue_->receiver_left = true;
  }
  QueueRecvLink(const QueueRecvLink&) = delete;
  QueueRecvLink& operator=(const QueueRecvLink&) = delete;

  const comm::StepHeader* try_step(std::byte*, std::size_t) override {
    if (!step_ && !take()) return nullptr;
    return &step_->header;
  }
  const std::byte* data() const override { return step_->bytes.data(); }
  void release() override { step_.reset(); }
  comm::Wake wake() const override { return {comm::Wake::By::looking}; }

 private:
  bool take() {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->steps.empty() && queue_->sender_left) throw_left(peer_);
    if (queue_->steps.empty()) return false;
    step_ = std::move(queue_->steps.front());
    queue_->steps.pop_front();
    return true;
  }

  std::shared_ptr<StepQueue> queue_;
  int peer_;
  std::optional<StepQueue::Step> step_;
};

// Both ends of a pair find each other by what they have advertised, a number that no other has.
class QueueConnector final : public comm::Connector {
 public:
  QueueConnector() { fill_random(id_); }
  std::vector<std::byte> advertise() override { return {id_.begin(), id_.end()}; }
  comm::Links connect(comm::Joint joint) override {
    const bool lower = joint.self.rank < joint.peer.rank;
    const auto [up, down] = queues(lower ? joint.self : joint.peer, lower ? joint.peer : joint.self, joint.lane);
    return {.send = std::make_unique<QueueSendLink>(lower ? up : down, joint.peer.rank, joint.shape),
            .recv = std::make_unique<QueueRecvLink>(lower ? down : up, joint.peer.rank),
            .longest_step = joint.shape.slice_bytes};
  }

 private:
  using Queues = std::pair<std::shared_ptr<StepQueue>, std::shared_ptr<StepQueue>>;
  using Id = std::vector<std::byte>;
  static Queues queues(const comm::Party& low, const comm::Party& high, comm::Lane lane) {
    static std::mutex mutex;
    static std::map<std::tuple<Id, Id, comm::Lane>, Queues> waiting;  // for the other end
    const auto id_of = [](const comm::Party& p) { return Id(p.advertised.begin(), p.advertised.end()); };
    const std::lock_guard lock(mutex);
    const auto [at, first] = waiting.try_emplace({id_of(low), id_of(high), lane});
    if (first) at->second = {std::make_shared<StepQueue>(), std::make_shared<StepQueue>()};
    const Queues found = at->second;
    if (!first) waiting.erase(at);
    return found;
  }
  MeetingId id_{};
};

inline comm::Transport queue_row() {
  return {
      .name = "queue",
      .needs = comm::Transport::Needs::nothing,
      .can_connect = [](const comm::Party& one,
                        const comm::Party& other) { return one.host == other.host && one.pid == other.pid; },
      .open = [](const Bootstrap&) -> std::unique_ptr<comm::Connector> { return std::make_unique<QueueConnector>(); }};
}

// The library's, and that one before or behind them.
inline const comm::Transports& queue_before_all() {
  static const comm::Transports table = [] {
    comm::Transports rows = comm::transports();
    rows.insert(rows.begin(), queue_row());
    return rows;
  }();
  return table;
}
inline const comm::Transports& queue_behind_all() {
  static const comm::Transports table = [] {
    comm::Transports rows = comm::transports();
    rows.push_back(queue_row());
    return rows;
  }();
  return table;
}

}  // namespace rondo::test
