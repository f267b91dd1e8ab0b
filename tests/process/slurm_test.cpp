// SPDX-License-Identifier: Apache-2.0
// A real Slurm of two hosts in network namespaces runs the job files of examples/clusters.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>

#include "comm/base/machine.hpp"
#include "tests/process/host.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr std::size_t kNodes = 2;

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Nodes n0 and n1; the controller is on n0.
class Slurm {
 public:
  Slurm() : folder_(fs::temp_directory_path() / ("rondo-slurm-" + std::to_string(::getpid()))) {
    for (const char* name : {"state", "munge", "spooln0", "spooln1"}) fs::create_directories(folder_ / name);
    fs::permissions(folder_ / "munge", fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
    make_network();
    write_configuration();
    const std::string munge = path("munge/");
    daemon(0, "head -c 128 /dev/urandom >" + munge + "key && chmod 400 " + munge +
                  "key && exec munged --foreground "
                  "--force --key-file=" +
                  munge + "key --socket=" + socket() + " --pid-file=" + munge + "pid --log-file=" + munge +
                  "log --seed-file=" + munge + "seed");
    await([&] { return fs::exists(socket()); }, "munged");
    daemon(0, "exec slurmctld -D -c -f " + path("slurm.conf"));
    for (std::size_t i = 0; i < kNodes; ++i)
      daemon(i, "exec slurmd -D -f " + path("slurm.conf") + " -N n" + std::to_string(i));
    await([&] { return call({"sinfo", "-h", "-N", "-o", "%t"}).out == "idle\nidle\n"; }, "two idle nodes");
  }
  ~Slurm() {
    for (auto daemon = daemons_.rbegin(); daemon != daemons_.rend(); ++daemon) {
      (*daemon)->signal(SIGTERM);
      (*daemon)->wait();
    }
    fs::remove_all(folder_);
  }
  Ended call(const Words& command) const {
    return run(hosts_[0].inside(command),
               {.environment = {"SLURM_CONF=" + path("slurm.conf"), "PATH=" + programs(), "RANKS_PER_NODE=2"}});
  }
  // What the job wrote, once it is no longer there.
  std::string batch(const std::string& script, const Words& arguments) const {
    const std::string file = path("out");
    const auto submitted = call(Words{"sbatch", "--parsable", "--chdir=" + folder_.string(), "--output=" + file,
                                      RONDO_SOURCE_DIR "/examples/clusters/" + script} +
                                arguments);
    if (submitted.code != 0) throw std::runtime_error("sbatch: " + submitted.err);
    const std::string job = submitted.out.substr(0, submitted.out.find('\n'));
    await(
        [&] {
          return call({"squeue", "-h", "-t", "all", "-o", "%T", "-j", job}).out == "COMPLETED\n";
        },
        "the end of " + script, file);
    return slurp(file);
  }
  bool holds_a_secret() const {
    return std::any_of(fs::directory_iterator(folder_), {}, [](const auto& entry) {
      return entry.path().filename().string().find(".secret") != std::string::npos;
    });
  }

 private:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string socket() const { return path("munge/socket"); }
  static std::string programs() {
    return std::string(RONDO_TEST_BIN) + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
  }
  // As the controller wants its own host to be called.
  static std::string this_host() {
    const std::string name = rondo::host_name();
    return name.substr(0, name.find('.'));
  }
  void make_network() {
    connect_all(bridge_, hosts_);
    for (std::size_t i = 0; i < kNodes; ++i) {
      hosts_[i].add_address("10.9.1." + std::to_string(i + 1) + "/24");
      hosts_[i].set_hosts("127.0.0.1 localhost\n10.9.1.1 n0 " + this_host() + "\n10.9.1.2 n1\n");
    }
  }
  void write_configuration() const {
    std::ofstream(path("slurm.conf"))
        << "ClusterName=test\nSlurmctldHost=" << this_host() << "(10.9.1.1)\nSlurmUser=root\nSlurmdUser=root\n"
        << "AuthType=auth/munge\nAuthInfo=socket=" << socket() << "\nStateSaveLocation=" << path("state")
        << "\nSlurmctldPidFile=" << path("ctl.pid") << "\nSlurmctldLogFile=" << path("ctl.log")
        << "\nSlurmdSpoolDir=" << folder_.string() << "/spool%n\nSlurmdPidFile=" << folder_.string()
        << "/%n.pid\nSlurmdLogFile=" << folder_.string() << "/%n.log\nSlurmdParameters=config_overrides\n"
        << "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n"
        << "AccountingStorageType=accounting_storage/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n"
        << "MpiDefault=none\nReturnToService=2\nKillWait=2\n"
        << "NodeName=n[0-1] NodeAddr=10.9.1.[1-2] CPUs=4 RealMemory=100 State=UNKNOWN\n"
        << "PartitionName=all Nodes=n[0-1] Default=YES State=UP\n";
  }
  void daemon(std::size_t host, const std::string& script) {
    daemons_.push_back(std::make_unique<Running>(hosts_[host].inside({"sh", "-c", "exec >/dev/null 2>&1; " + script}),
                                                 Running::How{.environment = {"PATH=" + programs()}}));
  }
  template <class Condition>
  void await(Condition condition, const std::string& what, const std::string& file = "") const {
    const auto until = std::chrono::steady_clock::now() + 40s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until)
        throw std::runtime_error("no " + what + ":\n" + slurp(file.empty() ? path("n0.log") : file));
      std::this_thread::yield();
    }
  }
  fs::path folder_;
  Host bridge_;
  std::deque<Host> hosts_{kNodes};
  std::deque<std::unique_ptr<Running>> daemons_;
};

bool slurm_is_here() {
  if (run({"sh", "-c",
           "PATH=$PATH:/usr/sbin; command -v slurmctld && command -v slurmd && command -v munged && "
           "command -v sbatch && command -v srun"})
          .code == 0)
    return true;
  std::cout << "skipped: slurm-wlm and munge are not installed\n";
  return false;
}

std::string sorted_ranks(const std::string& out) {
  std::istringstream in(out);
  std::vector<std::string> ranks;
  for (std::string line; std::getline(in, line);)
    if (const auto at = line.find("rank "); at != std::string::npos) ranks.push_back(line.substr(at));
  std::sort(ranks.begin(), ranks.end());
  std::string all;
  for (const std::string& rank : ranks) all += rank + "\n";
  return all;
}

}  // namespace

TEST_CASE(
    "the job files for Slurm make one world of two hosts, with rondorun on each and without, and leave no secret") {
  if (!slurm_is_here() || !namespaces_possible()) return;
  const Slurm slurm;
  const std::string world =
      "rank 0 of 4, local 0: the sum is 10\nrank 1 of 4, local 1: the sum is 10\n"
      "rank 2 of 4, local 0: the sum is 10\nrank 3 of 4, local 1: the sum is 10\n";
  for (const char* script : {"slurm-rondorun.sbatch", "slurm-plain.sbatch"}) {
    CAPTURE(script);
    const std::string out = slurm.batch(script, {"who"});
    CAPTURE(out);
    CHECK(sorted_ranks(out) == world);
    CHECK_FALSE(slurm.holds_a_secret());
  }
  const auto refused = slurm.call({"srun", "-N2", "--ntasks-per-node=2", "rondorun", "who"});
  CHECK(refused.code == 2);
  CHECK(refused.err.find("SLURM_STEP_NUM_TASKS=4: several launchers are on one node") != std::string::npos);
}
