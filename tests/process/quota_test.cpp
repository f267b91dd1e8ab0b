// SPDX-License-Identifier: Apache-2.0
// A real control group with a CPU quota, where one can be made.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tools/rondorun/cores.hpp"

namespace {

using namespace rondo::test;
namespace fs = std::filesystem;

// Of one core, whichever version of control groups is here; gone with this object.
class Group {
 public:
  Group() {
    const fs::path unified = "/sys/fs/cgroup", first = "/sys/fs/cgroup/cpu";
    const bool old = fs::exists(first / "cpu.cfs_quota_us");
    path = (old ? first : unified) / ("rondo-test-" + std::to_string(::getpid()));
    std::error_code error;
    if (!fs::create_directory(path, error)) return;
    made_ = true;
    std::ofstream limit(path / (old ? "cpu.cfs_quota_us" : "cpu.max"));
    limit << "100000" << std::flush;
    limited = limit.good() && std::ofstream(path / "cgroup.procs", std::ios::app).good();
  }
  ~Group() {
    if (made_) ::rmdir(path.c_str());
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  fs::path path;
  bool limited = false;

 private:
  bool made_ = false;
};

}  // namespace

TEST_CASE("ranks are as many as a control group's quota allows for, and so are their threads") {
  const auto all = rondo::launcher::allowed_cpus().size();
  const Group group;
  if (all < 2 || !group.limited) {
    std::puts(all < 2 ? "skipped: there is one core only" : "skipped: no control group can be made here");
    return;
  }
  const std::string join = "echo $$ > " + (group.path / "cgroup.procs").string() + " && exec \"$@\"";
  const auto in_group = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> command{"sh", "-c", join, "sh"};
    for (const auto& word : rondorun(flags)) command.push_back(word);
    return run(command, {.environment = {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES="}});
  };
  const auto automatic = in_group({"-n", "auto", "sh", "-c", "echo $WORLD_SIZE/$OMP_NUM_THREADS"});
  CAPTURE(automatic.err);
  CHECK(automatic.out == "[0] 1/1\n");
  CHECK(automatic.err.empty());
  const auto two = in_group({"-n", "2", "sh", "-c", "echo $OMP_NUM_THREADS"});
  CHECK(two.err.find("and a CPU quota of 1: OMP_NUM_THREADS is 1") != std::string::npos);
}
