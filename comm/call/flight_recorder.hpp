// SPDX-License-Identifier: Apache-2.0
// The last calls of this rank, kept in memory and written as JSON on failure or on demand. The thread that runs calls
// writes; any thread may read meanwhile, and leaves out an entry that is being rewritten.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/ticks.hpp"
#include "comm/call/signature.hpp"

namespace rondo::comm {

class FlightRecorder {
 public:
  // `algorithm` and `kernel` (on devices: which one ran it): text that is always there. Its number.
  std::uint64_t begin(const Signature& signature, std::string_view algorithm, std::string_view kernel = {});
  void amend(std::string_view algorithm);        // of the latest begin(): another one than it said
  void end(std::uint64_t ticks = read_ticks());  // of the latest begin()
  void end_call(std::uint64_t call);             // of the begin() that returned it
  // A list, by the time when they began; times are steady_clock's. `messages`: another recorder's calls among this
  // one's.
  std::string json(const FlightRecorder* messages = nullptr) const;

 private:
  static constexpr std::uint64_t kCalls = 64;
  struct Record {
    Signature signature;
    std::string_view algorithm, kernel;
    std::uint64_t begun, ended;  // ticks; ended 0: not yet
  };
  static constexpr std::size_t kWords = sizeof(Record) / sizeof(std::uint64_t);
  struct Entry {
    std::atomic<std::uint64_t> call{0};  // which, from 1; 0 while being rewritten
    std::array<std::atomic<std::uint64_t>, kWords> words{};
  };
  Entry& entry(std::uint64_t call) { return entries_[call % kCalls]; }
  template <class T>
  static void put(Entry& into, std::size_t offset, const T& value);  // of a Record's member
  std::optional<Record> read(std::uint64_t call) const;
  void read_all(std::vector<Record>& records) const;

  std::array<Entry, kCalls> entries_{};
  std::atomic<std::uint64_t> calls_{0};
  TickScale scale_;
};

// What was called, as fields of a JSON object.
std::string json_fields(const Signature& signature);

}  // namespace rondo::comm
