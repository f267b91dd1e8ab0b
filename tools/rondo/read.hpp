// SPDX-License-Identifier: Apache-2.0
// What jobs leave in their folders of failures, as it is read. Anybody may have written these files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::records {

struct Call {
  std::string collective, dtype, reduce_op, algorithm;
  std::int64_t sequence = 0, count = 0;
  int root = -1;
  bool on_device = false;
  double begun_us = 0;               // of the wall clock, like all times here; 0: only neighbours know of it
  std::optional<double> ended_us{};  // none: it was not over
  bool is_message() const { return collective == "send" || collective == "recv"; }
};

struct Peer {
  int rank = 0, job_rank = 0;
  std::string state;         // lost, left, stopped, or nothing special
  std::int64_t entered = 0;  // the latest collective that it is known to have entered
  std::vector<Call> history;
};

struct Communicator {
  std::string name, failure;
  std::int64_t generation = 0;
  int rank = 0, world_size = 1, job_rank = 0;
  std::vector<Call> calls;
  std::vector<Peer> peers;
};

struct Record {  // of one process
  std::string host;
  std::int64_t pid = 0;
  double written_us = 0;
  std::vector<Communicator> communicators;
};

struct RankEnd {  // as its launcher saw it
  int rank = 0;
  bool replaces = false;  // a lost process of this rank, so it has another number in the job
  std::int64_t pid = 0;
  std::string state;  // a letter of proc(5), when the failure happened; empty: it had ended
  std::optional<std::int64_t> exit_code{}, signal{};
  std::optional<double> ended_us{};
  std::vector<std::string> last_lines;
};

struct Job {  // of one node
  std::string job, host, sentence;
  std::vector<std::string> command;
  std::int64_t node = 0, nodes = 1, restarts = 0;
  int world_size = 1, failed_rank = -1;
  double happened_us = 0;
  std::vector<RankEnd> ranks;
};

struct Folder {
  std::vector<Job> jobs;          // one for each node that left one
  std::map<int, Record> records;  // by rank in the job
};

// One file each. Error: one sentence.
Record record_of(std::string_view json);
Job job_of(std::string_view json);

// Of one job; several nodes leave one folder each. Error: one sentence that names the file.
Folder read_folders(const std::vector<std::filesystem::path>& folders);

struct Snapshot;
// What a launcher says of a job that runs. A rank whose words are no record has none.
Folder read_snapshot(const Snapshot& snapshot);

}  // namespace rondo::records
