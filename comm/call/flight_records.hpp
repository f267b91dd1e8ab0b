// SPDX-License-Identifier: Apache-2.0
// What is left of a job that fails: the last calls of all communicators of this process, and what it knows of its
// peers, as one document of JSON. It goes to rondorun's socket (RONDO_RECORD_FD) and to a file below
// RONDO_FLIGHT_RECORDER, when a communicator fails; to rondorun also when it asks, on the monitor's thread.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/team/monitor.hpp"

namespace rondo::detail {
class CommunicatorImpl;
}

namespace rondo::comm {

// Communicator::flight_record(). Any thread.
std::string flight_record(const detail::CommunicatorImpl& communicator);

// One packet each way. To rondorun: the letter, then the document; a bound that every socket takes.
inline constexpr std::size_t kMostRecordBytes = 128 << 10;
enum class RecordKind : char { failure = 'f', asked = 'a' };
inline constexpr char kAskForRecord = 'r';

// Any thread.
class FlightRecords {
 public:
  static std::shared_ptr<FlightRecords> of_process();
  FlightRecords() = default;
  ~FlightRecords();
  FlightRecords(const FlightRecords&) = delete;
  FlightRecords& operator=(const FlightRecords&) = delete;

  void enroll(const detail::CommunicatorImpl& communicator);
  void leave(const detail::CommunicatorImpl& communicator);  // waits for a document that is being made
  void write(const detail::CommunicatorImpl& failed);

 private:
  void listen(int launcher);
  bool answer();
  void tell_launcher(RecordKind kind, const std::string& document) const;
  std::string document(const detail::CommunicatorImpl* failed, bool whole_process) const;

  mutable std::mutex mutex_;  // guards what follows
  std::vector<const detail::CommunicatorImpl*> enrolled_;
  int launcher_ = -1;  // its socket, open as long as the process
  std::shared_ptr<Monitor> monitor_;
  int watch_ = -1;
};

}  // namespace rondo::comm
