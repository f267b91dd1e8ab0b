// SPDX-License-Identifier: Apache-2.0
// Steps as Chrome trace events, which ui.perfetto.dev and chrome://tracing open: a process per rank, a row for the
// model and one for the communication.
#pragma once
#include <string>
#include <vector>

#include <rondo/communicator.hpp>
#include <rondo/trainer/step_record.hpp>

namespace rondo::trainer {

// This rank's steps. One thread at a time.
class RONDO_API Timeline {
 public:
  void add(const StepRecord& record) { records_.push_back(record); }  // after finish()
  std::string json(int rank) const;                                   // of this rank's steps
  // Collective: rank 0 writes all ranks' steps into one file. Clocks of ranks on one node are the same; those of
  // different nodes are shifted so that the first step of each node begins at zero. Error(system), on every rank, when
  // it cannot.
  void write(Communicator& communicator, const std::string& path) const;

 private:
  std::string events(int rank, StepRecord::Clock::time_point zero) const;
  std::vector<StepRecord> records_;
};

}  // namespace rondo::trainer
