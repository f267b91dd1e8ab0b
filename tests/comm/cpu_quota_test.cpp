// SPDX-License-Identifier: Apache-2.0
#include "comm/base/cpu_quota.hpp"

#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "comm/setup/placement.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::comm;

namespace {

struct File {
  std::string path, text;
};

// A folder that looks like / to who asks for control groups.
class Root {
 public:
  explicit Root(const std::vector<File>& files)
      : folder_(std::filesystem::temp_directory_path() / ("rondo-cgroup-" + std::to_string(::getpid()))) {
    for (const File& file : files) {
      std::filesystem::create_directories((folder_ / file.path).parent_path());
      std::ofstream(folder_ / file.path) << file.text;
    }
  }
  ~Root() { std::filesystem::remove_all(folder_); }
  double quota() const { return rondo::cpu_quota(folder_); }

 private:
  std::filesystem::path folder_;
};

const File kUnified{"proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"};
const File kFirstVersion{"proc/self/mountinfo",
                         "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
                         "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                         "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct\n"};
const File kJob{"proc/self/cgroup", "0::/slurm/job7\n"};
const File kOldJob{"proc/self/cgroup", "9:memory:/elsewhere\n4:cpu,cpuacct:/batch/job7\n0::/\n"};

}  // namespace

TEST_CASE("no control groups, no quota") {
  CHECK(std::isinf(Root({}).quota()));
  CHECK(std::isinf(Root({kUnified, kJob, {"sys/fs/cgroup/slurm/job7/cpu.max", "max 100000\n"}}).quota()));
}

TEST_CASE("the CPU quota of version 2 is the least of the group's and its parents'") {
  CHECK(Root({kUnified, kJob, {"sys/fs/cgroup/slurm/job7/cpu.max", "150000 100000\n"}}).quota() == 1.5);
  CHECK(Root({kUnified,
              kJob,
              {"sys/fs/cgroup/slurm/cpu.max", "200000 100000\n"},
              {"sys/fs/cgroup/slurm/job7/cpu.max", "max 100000\n"}})
            .quota() == 2.0);
  // In a group namespace of its own a container sees its limits at the top.
  CHECK(Root({kUnified, {"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "50000 100000\n"}}).quota() == 0.5);
}

TEST_CASE("the CPU quota of version 1 lies where its controller is mounted") {
  const File quota{"sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "300000\n"};
  const File period{"sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n"};
  const File none{"sys/fs/cgroup/cpu,cpuacct/batch/job7/cpu.cfs_quota_us", "-1\n"};
  const File of_none{"sys/fs/cgroup/cpu,cpuacct/batch/job7/cpu.cfs_period_us", "100000\n"};
  CHECK(Root({kFirstVersion, kOldJob, quota, period, none, of_none}).quota() == 3.0);
  CHECK(std::isinf(Root({kFirstVersion, kOldJob, none, of_none}).quota()));
}

TEST_CASE("a mount that begins at the container's own group") {
  const File mount{"proc/self/mountinfo", "31 23 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"};
  const File limit{"sys/fs/cgroup/cpu.max", "400000 100000\n"};
  CHECK(Root({mount, {"proc/self/cgroup", "0::/docker/abc\n"}, limit}).quota() == 4.0);
  CHECK(Root({mount, {"proc/self/cgroup", "0::/docker/abc/inner\n"}, limit}).quota() == 4.0);
  CHECK(Root({mount, {"proc/self/cgroup", "0::/docker/other\n"}, limit}).quota() == 4.0);
}

TEST_CASE("usable cores never exceed the affinity mask") {
  cpu_set_t before, one;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(usable_cores() >= 1);
  CHECK(usable_cores() <= CPU_COUNT(&before));
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cores() == 1);
  ::sched_setaffinity(0, sizeof before, &before);
}
