// SPDX-License-Identifier: Apache-2.0
// An event: a place in a stream, and when the stream came by. All of it is guarded by Process::mutex but `passed_ns`.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/soft/timeline.hpp"

namespace rondo::soft {

struct Capture;
struct Device;

struct Event {
  struct Record {
    std::atomic<std::int64_t> passed_ns{0};
  };
  Device* device;
  bool timing;
  std::shared_ptr<Record> record;  // null: never recorded, or in a capture
  Ticket ticket;
  std::shared_ptr<Capture> capture;  // recorded there last
  std::vector<int> nodes;            // of its graph: what a stream that waits comes after
};

}  // namespace rondo::soft
