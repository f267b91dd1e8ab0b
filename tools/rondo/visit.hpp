// SPDX-License-Identifier: Apache-2.0
// Jobs of this user that run on this host, and what their launchers say of them.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "comm/base/fd.hpp"
#include "tools/rondo/snapshot.hpp"

namespace rondo::records {

struct RunningJob {
  pid_t launcher = 0;
  std::string socket;
};
// In this network namespace, by their launchers' ids.
std::vector<RunningJob> running_jobs();

// The one that this process is of: a launcher, a rank, or what a rank has started; 0: the only one there is.
// std::runtime_error: one sentence, also where there are several.
RunningJob find_job(pid_t process);

// Asks a launcher, as often as one likes. std::runtime_error: another user's, or it does not answer.
class Visit {
 public:
  explicit Visit(const RunningJob& job);
  std::optional<Snapshot> look();  // none: the job has ended

 private:
  Fd socket_;
  SnapshotReader reader_;
};

}  // namespace rondo::records
