// SPDX-License-Identifier: Apache-2.0
// What --explain prints: each thing that is derived from the command line and the scheduler's variables, in the order
// in which it is, and what says so. Where the command line is refused, what had been derived until then.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/rondorun/options.hpp"

namespace rondo::launcher {

class Explanation {
 public:
  // What says the value of a flag: "--nnodes 2", "PET_NNODES=2", "SLURM_STEP_NUM_TASKS=2"; empty: nothing does.
  void set_origin(std::string_view flag, const std::string& origin) { origins_[std::string(flag)] = origin; }
  // Of the first of these flags that has one; empty: none has.
  std::string origin(std::initializer_list<std::string_view> flags) const;
  void add(std::string_view what, const std::string& value) { lines_.emplace_back(what, value); }
  std::string text() const;

 private:
  std::map<std::string, std::string> origins_;
  std::vector<std::pair<std::string, std::string>> lines_;
};

void explain_ranks(Explanation& explanation, const Options& options);  // of this node, and their cores
void explain_nodes(Explanation& explanation, const Options& options);
void explain_hosts(Explanation& explanation, const Options& options);  // where ranks are started by ssh
void explain_secret(Explanation& explanation, const Options& options);
void explain_program(Explanation& explanation);  // what the program would be if it was started as rondorun was

}  // namespace rondo::launcher
