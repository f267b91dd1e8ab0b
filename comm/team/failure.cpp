// SPDX-License-Identifier: Apache-2.0
#include "comm/team/failure.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace rondo::comm {

bool Failure::raise(ErrorCode code, const Culprits& culprits, std::string_view sentence) const {
  std::uint32_t expected = FailureRecord::kNone;
  const bool first = record_->state.compare_exchange_strong(expected, FailureRecord::writing(rank_));
  if (first) {
    record_->code = static_cast<std::int32_t>(code);
    record_->culprits = culprits;
    const std::size_t length = std::min(sentence.size(), record_->sentence.size() - 1);
    std::copy_n(sentence.data(), length, record_->sentence.data());
    record_->sentence[length] = '\0';
    record_->state.store(FailureRecord::kSet, std::memory_order_release);
  }
  bells_.ring_all();
  return first;
}

// A rank that has lost its mind may have written over the end of it.
static std::string written_in(const FailureRecord& record) {
  return {record.sentence.data(), ::strnlen(record.sentence.data(), record.sentence.size())};
}

std::string Failure::sentence() const {
  return record_->state.load(std::memory_order_acquire) == FailureRecord::kSet ? written_in(*record_) : std::string();
}

Error Failure::error() const {
  known_.store(true, std::memory_order_relaxed);
  // The writer may be killed between its two stores; its peers then know only that it failed.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  for (;;) {
    const std::uint32_t state = record_->state.load(std::memory_order_acquire);
    if (state == FailureRecord::kSet) break;
    if (std::chrono::steady_clock::now() > patience) {
      const int writer = FailureRecord::writer(state);
      return {ErrorCode::peer_lost,
              fmt::format("rank {} died, or was stopped, while it was reporting a failure", writer), writer};
    }
    sched_yield();
  }
  return {static_cast<ErrorCode>(record_->code), written_in(*record_), record_->culprits.one, record_->culprits.list()};
}

}  // namespace rondo::comm
