// SPDX-License-Identifier: Apache-2.0
// Rank 0 goes through a scope first (it downloads, unpacks, caches), then all others do.
#pragma once
#include <exception>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

// { const RankZeroFirst order(communicator); dataset = open_or_download(); }
// Collective: one all_gather. The others wait in the constructor, within the communicator's timeout. When an exception
// leaves rank 0's scope they get Error(aborted) there instead of going through it. For one per node, pass a
// communicator of the node: split(node(), rank()).
class RankZeroFirst {
 public:
  // Collective. The communicator outlives it.
  explicit RankZeroFirst(Communicator& communicator)
      : communicator_(communicator), exceptions_(std::uncaught_exceptions()) {
    if (communicator_.rank() != 0) meet(true);
  }
  RankZeroFirst(const RankZeroFirst&) = delete;
  RankZeroFirst& operator=(const RankZeroFirst&) = delete;
  ~RankZeroFirst() {
    if (communicator_.rank() != 0) return;
    try {
      meet(std::uncaught_exceptions() == exceptions_);
    } catch (const std::exception&) {
      // the communicator has failed; its next call says so
    }
  }

 private:
  void meet(bool good) {
    const std::byte mine{good};
    const auto all = communicator_.all_gather_bytes(std::span(&mine, 1));
    if (communicator_.rank() != 0 && all[0][0] == std::byte{0}) {
      throw Error(ErrorCode::aborted, "RankZeroFirst: an exception ended rank 0's part; its own error says why", 0);
    }
  }
  Communicator& communicator_;
  int exceptions_;
};

}  // namespace rondo::trainer
