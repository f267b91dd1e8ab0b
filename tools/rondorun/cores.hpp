// SPDX-License-Identifier: Apache-2.0
// The cores of this node that the job may use, and how its local ranks share them out.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "comm/base/fd.hpp"

namespace rondo::launcher {

struct Cpu {
  int number = 0;  // as the kernel counts: a hardware thread
  int core = 0;    // the first thread of its core
  int node = 0;    // NUMA node, socket, and the first of the threads that share its last cache
  int socket = 0;
  int complex = 0;
  bool operator==(const Cpu&) const = default;
};

struct Cores {
  std::vector<Cpu> cpus;  // that the affinity mask allows; by node, then core
  double quota = 0;       // what control groups leave of them, in cores; infinity: all
  bool operator==(const Cores&) const = default;
};

// `root` is "/", or a test's folder that looks like it. Where the kernel says nothing of nodes, there is one.
Cores read_cores(const std::filesystem::path& root, const std::vector<int>& allowed);
std::vector<int> allowed_cpus();      // of this process's affinity mask
int usable_cpus(const Cores& cores);  // hardware threads, or the quota where that is less; at least 1

enum class Binding { none, core, numa, socket, complex };

struct Share {            // of one rank
  int threads = 1;        // that compute at once
  std::vector<int> cpus;  // that it is bound to; empty: to none of its own
  bool operator==(const Share&) const = default;
};

// One for each local rank. `gpu_nodes` are the NUMA nodes of the ranks' GPUs, which the ranks are bound near to; empty
// where they are not known. Throws Error where ranks cannot be bound as asked.
std::vector<Share> share_cores(const Cores& cores, int ranks, Binding binding, const std::vector<int>& gpu_nodes);

// What is said of OMP_NUM_THREADS; empty where there is nothing to say.
std::string threads_sentence(const Cores& cores, const std::vector<Share>& shares);

std::string cpu_list(std::vector<int> cpus);  // "0-3,8"

// Says to other launchers on this host which of its cores are bound, until it ends.
class BoundCores {
 public:
  // Of those cores; which another launcher has bound, too.
  std::vector<int> take(const std::vector<Share>& shares);

 private:
  std::vector<Fd> names_;
};

}  // namespace rondo::launcher
