// SPDX-License-Identifier: Apache-2.0
// Every flag of rondorun's and of torchrun's, as a table: what is parsed, and the pages about it, follow from it.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace rondo::launcher {

enum class Honoured {
  same,       // as torchrun's
  different,  // taken, but not quite so
  refused,    //
  own,        // none of torchrun's
};

enum class OnNodes {  // a flag, where the launchers of a job's nodes have it differently
  own,                // each node has its own
  compared,           // whoever has another than node 0 is refused, by the flag's name
  command,            // the same, as part of what the ranks run, unless --rdzv-id says that this is one job
  meeting,            // they do not meet, or are told by the one that serves
  none,               // it has no effect then
};

enum class WithHosts {  // what becomes of a flag
  passed_on,            // to the rondorun of every host
  ours,                 // it says what each of them is told anew, or what this one does
};

struct Flag {
  std::string_view name;   // without dashes; underscores may stand for those within
  char letter;             // its short form; 0: none
  std::string_view value;  // what follows it; empty: nothing
  Honoured honoured;
  std::string_view help;
  std::string_view why;  // what differs from torchrun's, or what to do instead
  OnNodes on_nodes;
  WithHosts with_hosts = WithHosts::passed_on;
};

std::span<const Flag> flags();
const Flag& flag(std::string_view name);    // of the table
std::string spellings(const Flag& flag);    // "-n,--nproc-per-node,--nproc_per_node"
std::string variable_of(const Flag& flag);  // that stands for a flag of torchrun's, "PET_NNODES"; empty: none

std::string torchrun_page();    // docs/torchrun.md
std::string man_page();         // docs/rondorun.1
std::string bash_completion();  // tools/rondorun/completion.bash

}  // namespace rondo::launcher
