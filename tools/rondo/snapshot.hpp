// SPDX-License-Identifier: Apache-2.0
// What a launcher answers who looks at its job while that runs: rondo top asks, rondorun tells. Over a socket in the
// abstract namespace, so that nothing is left of a job that is gone, one for each launcher.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace rondo::records {

// Its address without the leading zero: "rondorun/UID/PID/" of the launcher that people see, and something that nobody
// can take in advance.
std::string socket_prefix(uid_t user);
std::string new_socket_name(uid_t user, pid_t launcher);

inline constexpr char kAskForSnapshot = 's';  // a byte from who looks; then one snapshot comes

struct Snapshot {
  std::string job;                     // as job.json of a failure
  std::map<int, std::string> records;  // as rank<r>.json
};
// One document after another, each with its name and length before it.
std::string encode(const Snapshot& snapshot);

// Puts together what comes in pieces. std::runtime_error: it is none.
class SnapshotReader {
 public:
  void take(std::string_view bytes);
  std::optional<Snapshot> next();  // once it is whole

 private:
  std::string bytes_;
  std::size_t at_ = 0;
  Snapshot snapshot_;
};

}  // namespace rondo::records
