// SPDX-License-Identifier: Apache-2.0
// The two levels of a communicator on several nodes: an engine for the ranks of this node, with windows and pushes, and
// one for this rank's rail, whose links are a proxy's. Both speak for the communicator: of its ranks by its numbers, of
// its calls by theirs. Their launches follow each other on the stream of the call, within the blocks of its berth.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/call/signature.hpp"
#include "comm/device/levels/level_plan.hpp"
#include "comm/device/memory/cuda_handles.hpp"

namespace rondo::comm::device {

class DeviceEngine;

class Levels {
 public:
  struct Parts {
    Communicator node_world;  // of this node's ranks, on the host: how their regions came about
    LevelShape shape;
    DeviceMemory scratch;
    std::unique_ptr<DeviceEngine> node, rail;  // rail: null where this rank is on none
    Determinism determinism{};
    std::string wanted;  // the algorithm, by name
  };
  explicit Levels(Parts parts);
  ~Levels();
  Levels(const Levels&) = delete;
  Levels& operator=(const Levels&) = delete;

  // See level_plan.
  std::string_view why_not(const Call& call) const;
  // before(word): a level is about to be used; `word`: Regions::failed_word().
  void run(const Call& call, const Signature& signature, cudaStream_t stream, std::chrono::milliseconds timeout,
           const std::function<void(std::byte* word)>& before);
  std::string_view kernels_of(const Call& call) const;  // "window, simple, window"; for as long as the process lives

  void inspect();
  void abort();
  void keep();  // a busy device, or a graph, still uses scratch

 private:
  DeviceEngine& engine_of(Level level) const { return *(level == Level::node ? parts_.node : parts_.rail); }

  Parts parts_;
};

}  // namespace rondo::comm::device
