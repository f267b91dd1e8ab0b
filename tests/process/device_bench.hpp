// SPDX-License-Identifier: Apache-2.0
// The bench programs on simulated devices, as jobs.
#pragma once
#include <sstream>

#include "tests/process/host.hpp"
#include "tests/support/catch.hpp"

namespace rondo::test {

inline const Words kPrograms{"all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "broadcast_perf",
                             "reduce_perf",     "gather_perf",     "scatter_perf",        "alltoall_perf",
                             "sendrecv_perf",   "barrier_perf"};

inline Words bench(const std::string& program, const Words& flags = {}, const char* most = "32K") {
  return Words{tool(program), "--device", "sim", "-b", "8",         "-e", most, "-f", "64",
               "-n",          "2",        "-w",  "1",  "--batches", "1",  "-c", "1"} +
         flags;
}

inline void check_right_and_labelled(const Ended& ended) {
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out.find("Out of bounds values : 0 OK") != std::string::npos);
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) CHECK(line.ends_with("simulated"));
}

}  // namespace rondo::test
