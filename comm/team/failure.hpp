// SPDX-License-Identifier: Apache-2.0
// The communicator's one failure: the first of all ranks of a node wins, everybody reads it, nobody clears it.
#pragma once
#include <atomic>
#include <string>
#include <string_view>

#include <rondo/error.hpp>

#include "comm/team/doorbell.hpp"
#include "comm/team/segment.hpp"

namespace rondo::comm {

class Failure {
 public:
  Failure() = default;
  Failure(int rank, FailureRecord& record, Doorbells bells) : rank_(rank), record_(&record), bells_(std::move(bells)) {}

  bool raised() const { return record_->state.load(std::memory_order_relaxed) != FailureRecord::kNone; }
  // True for the first; wakes every rank of the node either way.
  bool raise(ErrorCode code, const Culprits& culprits, std::string_view sentence) const;
  Error error() const;           // only after raised()
  std::string sentence() const;  // as far as it has been written; tells nobody
  bool is_known() const { return known_.load(std::memory_order_relaxed); }  // error() has been asked for
  void check() const {
    if (raised()) throw error();
  }

 private:
  int rank_ = 0;
  FailureRecord* record_ = nullptr;
  Doorbells bells_;
  mutable std::atomic<bool> known_{false};
};

}  // namespace rondo::comm
