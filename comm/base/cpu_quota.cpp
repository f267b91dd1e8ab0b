// SPDX-License-Identifier: Apache-2.0
#include "comm/base/cpu_quota.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace rondo {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

bool holds(const std::string& list, std::string_view word) {  // words between commas
  std::istringstream words(list);
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) return true;
  }
  return false;
}

struct Hierarchy {  // of control groups that limit the processor
  std::filesystem::path mounted_at;
  std::string root;   // the group that is mounted there
  std::string group;  // of this process
  bool unified;       // version 2
};

// Lines of /proc/self/cgroup: "4:cpu,cpuacct:/group"; of version 2: "0::/group".
std::string group_of(const std::filesystem::path& root, bool unified) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (unified ? controllers.empty() : holds(controllers, "cpu")) return line.substr(second + 1);
  }
  return {};
}

// Lines of /proc/self/mountinfo: id, parent, device, root, mount point, options, any number of fields, "-", type,
// source, options of the file system, which name the controllers of version 1.
std::vector<Hierarchy> hierarchies(const std::filesystem::path& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string skipped, mounted_root, mounted_at, type, options;
    words >> skipped >> skipped >> skipped >> mounted_root >> mounted_at;
    while (words >> skipped && skipped != "-") {
    }
    words >> type >> skipped >> options;
    const bool unified = type == "cgroup2";
    if (!unified && (type != "cgroup" || !holds(options, "cpu"))) continue;
    const auto at = root / std::filesystem::path(mounted_at).relative_path();
    if (const std::string group = group_of(root, unified); !group.empty()) {
      found.push_back({at, mounted_root, group, unified});
    }
  }
  return found;
}

// Of one group. "max" and -1 are no quota.
double quota_of(const std::filesystem::path& folder, bool unified) {
  double quota = 0, period = 0;
  if (unified) {
    std::ifstream(folder / "cpu.max") >> quota >> period;
  } else {
    std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
    std::ifstream(folder / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

}  // namespace

double cpu_quota(const std::filesystem::path& root) {
  double least = kNoQuota;
  for (const Hierarchy& all : hierarchies(root)) {
    // Inside a container the mount may begin at the container's own group.
    std::filesystem::path group = std::filesystem::path(all.group).lexically_relative(all.root);
    if (group.empty() || *group.begin() == "..") group = ".";
    std::filesystem::path folder = all.mounted_at;
    least = std::min(least, quota_of(folder, all.unified));
    for (const auto& part : group) least = std::min(least, quota_of(folder /= part, all.unified));
  }
  return least;
}

}  // namespace rondo
