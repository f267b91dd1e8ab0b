// SPDX-License-Identifier: Apache-2.0
// Ranks of different nodes: one thread moves what kernels put into pinned slots over the host links of a communicator
// of its own, and what comes from there into pinned slots, with credits the other way. Only Simple slots travel.
#pragma once
#include <functional>
#include <memory>
#include <span>

#include <rondo/communicator.hpp>

#include "comm/device/memory/regions.hpp"

namespace rondo::comm::device {

class Proxy {
 public:
  // A failure of a link: which rank is to blame, and one sentence. On the proxy's thread; once.
  using Fail = std::function<void(ErrorCode code, int culprit, std::string_view sentence)>;
  // `links`: a communicator of the same ranks in the same order that nobody else uses (split(0, rank)).
  // `names`: the ranks' numbers in what the proxy itself says; culprits are numbered as in `links`.
  // `failed`: the parent communicator has failed, so nothing needs to move any more. Both from the proxy's thread.
  Proxy(const Regions& regions, Communicator links, std::function<bool()> failed, Fail fail,
        std::span<const int> names = {});
  ~Proxy();  // kernels have ended: sends what they left, for a bounded time, then ends the thread
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void launched();  // any thread: kernels are about to run. Replayed graphs, which nobody announces, are noticed later

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::comm::device
