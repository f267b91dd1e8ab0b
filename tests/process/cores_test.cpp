// SPDX-License-Identifier: Apache-2.0
// How local ranks share cores out: on machines that are folders, and on this one.
#include "tools/rondorun/cores.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <regex>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tools/rondorun/gpus.hpp"

namespace {

using namespace rondo::launcher;
using namespace rondo::test;
using List = std::vector<int>;

// A folder that looks like / of a machine with so many nodes, and so many cores of two threads in each; the second
// threads are numbered behind all first ones, as on most machines. Each node is a socket of two caches.
class Machine {
 public:
  Machine(int nodes, int cores_of_node) : all_(nodes * cores_of_node) {
    for (int core = 0; core < all_; ++core) {
      const int node = core / cores_of_node;
      for (const int cpu : {core, core + all_}) {
        const auto folder = fmt::format("sys/devices/system/cpu/cpu{}/", cpu);
        write(folder + "topology/thread_siblings_list", fmt::format("{},{}", core, core + all_));
        write(folder + "topology/physical_package_id", std::to_string(node));
        write(folder + "cache/index0/level", "1");
        write(folder + "cache/index0/shared_cpu_list", fmt::format("{},{}", core, core + all_));
        const int half = cores_of_node / 2, first = core / half * half;
        write(folder + "cache/index1/level", "3");
        write(folder + "cache/index1/shared_cpu_list",
              fmt::format("{}-{},{}-{}", first, first + half - 1, first + all_, first + all_ + half - 1));
      }
    }
    for (int node = 0; node < nodes; ++node) {
      const int first = node * cores_of_node, last = first + cores_of_node - 1;
      write(fmt::format("sys/devices/system/node/node{}/cpulist", node),
            fmt::format("{}-{},{}-{}", first, last, first + all_, last + all_));
    }
    write("sys/devices/system/node/possible", "0-1");
  }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text << '\n';
  }
  void quota(const std::string& limit) const {
    write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
    write("proc/self/cgroup", "0::/job");
    write("sys/fs/cgroup/job/cpu.max", limit);
  }
  Cores cores() const {
    List all(static_cast<std::size_t>(2 * all_));
    std::iota(all.begin(), all.end(), 0);
    return read_cores(root, all);
  }
  const std::filesystem::path& root = folder_.path;

 private:
  TemporaryFolder folder_;
  int all_;
};

std::vector<std::string> bound(const std::vector<Share>& shares) {
  std::vector<std::string> lists;
  for (const Share& share : shares) lists.push_back(cpu_list(share.cpus));
  return lists;
}

List threads(const std::vector<Share>& shares) {
  List all;
  for (const Share& share : shares) all.push_back(share.threads);
  return all;
}

using Lists = std::vector<std::string>;

std::vector<std::string> job(std::vector<std::string> flags, const std::string& script) {
  flags.insert(flags.end(), {"--", "sh", "-c", script});
  return rondorun(flags);
}

const Running::How kFree{.environment = {"OMP_NUM_THREADS"}};  // unset

}  // namespace

TEST_CASE("cores are counted, not their hardware threads, and shared out evenly") {
  const Machine machine(2, 8);
  const Cores cores = machine.cores();
  CHECK(usable_cpus(cores) == 32);
  CHECK(threads(share_cores(cores, 1, Binding::none, {})) == List{16});
  CHECK(threads(share_cores(cores, 4, Binding::none, {})) == List{4, 4, 4, 4});
  CHECK(threads(share_cores(cores, 3, Binding::none, {})) == List{5, 5, 5});
  CHECK(threads(share_cores(cores, 40, Binding::none, {})) == List(40, 1));
  for (const Share& share : share_cores(cores, 4, Binding::none, {})) CHECK(share.cpus.empty());
}

TEST_CASE("bound ranks get cores of one node, with both of their threads") {
  const Machine machine(2, 8);
  const Cores cores = machine.cores();
  const auto four = share_cores(cores, 4, Binding::core, {});
  CHECK(bound(four) == Lists{"0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"});
  CHECK(threads(four) == List{4, 4, 4, 4});
  const auto three = share_cores(cores, 3, Binding::core, {});
  CHECK(bound(three) == Lists{"0-7,16-23", "8-11,24-27", "12-15,28-31"});
  CHECK(threads(three) == List{8, 4, 4});
  const auto near = share_cores(cores, 4, Binding::numa, {});
  CHECK(bound(near) == Lists{"0-7,16-23", "0-7,16-23", "8-15,24-31", "8-15,24-31"});
  CHECK(threads(near) == List{4, 4, 4, 4});
  CHECK(bound(share_cores(cores, 4, Binding::complex, {})) ==
        Lists{"0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"});
  CHECK(bound(share_cores(cores, 2, Binding::socket, {})) == Lists{"0-7,16-23", "8-15,24-31"});
}

TEST_CASE("only what the affinity mask allows is shared out") {
  const Machine machine(2, 8);
  const Cores six_and_two = read_cores(machine.root, {0, 1, 2, 3, 4, 5, 8, 9});
  CHECK(bound(share_cores(six_and_two, 4, Binding::core, {})) == Lists{"0-1", "2-3", "4-5", "8-9"});
  CHECK(usable_cpus(six_and_two) == 8);
  const Cores one_thread_each = read_cores(machine.root, {16, 17});
  CHECK(threads(share_cores(one_thread_each, 2, Binding::core, {})) == List{1, 1});
  CHECK_THROWS_WITH(share_cores(one_thread_each, 3, Binding::core, {}),
                    Catch::Contains("3 ranks cannot be bound to 2 cores"));
}

TEST_CASE("a machine that says nothing of its nodes has one, and each of its processors is a core") {
  const Cores cores = read_cores("/nonexistent", {0, 1, 2, 5});
  CHECK(std::isinf(cores.quota));
  CHECK(bound(share_cores(cores, 2, Binding::core, {})) == Lists{"0-1", "2,5"});
  CHECK(bound(share_cores(cores, 2, Binding::numa, {})) == Lists{"0-2,5", "0-2,5"});
}

TEST_CASE("a CPU quota counts, for threads and for auto") {
  const Machine machine(1, 16);
  machine.quota("600000 100000");
  const Cores cores = machine.cores();
  CHECK(usable_cpus(cores) == 6);
  CHECK(threads(share_cores(cores, 2, Binding::none, {})) == List{3, 3});
  CHECK(threads(share_cores(cores, 4, Binding::core, {})) == List{1, 1, 1, 1});
  CHECK(threads_sentence(cores, share_cores(cores, 2, Binding::none, {})) ==
        "2 ranks share 16 cores and a CPU quota of 6: OMP_NUM_THREADS is 3 for each, unless you set it");
}

TEST_CASE("ranks are bound near their GPUs") {
  const Machine machine(2, 8);
  for (const auto& [address, minor, node] : std::vector<std::tuple<std::string, int, int>>{
           {"0000:17:00.0", 1, 1}, {"0000:9a:00.0", 0, 0}, {"0000:b0:00.0", 2, 0}}) {
    machine.write("proc/driver/nvidia/gpus/" + address + "/information",
                  fmt::format("Model: \t\t x\nGPU UUID: \t GPU-{}f\nDevice Minor: \t {}", minor, minor));
    machine.write("sys/bus/pci/devices/" + address + "/numa_node", std::to_string(node));
  }
  CHECK(node_of_gpu(machine.root, "0") == 1);
  CHECK(node_of_gpu(machine.root, "1") == 0);
  CHECK(node_of_gpu(machine.root, "GPU-1f") == 1);
  CHECK_FALSE(node_of_gpu(machine.root, "3"));
  CHECK_FALSE(node_of_gpu(machine.root, "MIG-1/2/3"));
  for (const char* node : {"dev/nvidiactl", "dev/nvidia0", "dev/nvidia2"}) machine.write(node, "");
  CHECK(node_of_gpu(machine.root, "0") == 0);  // a container without the first one
  CHECK(bound(share_cores(machine.cores(), 3, Binding::core, {1, 0, 0})) ==
        Lists{"8-15,24-31", "0-3,16-19", "4-7,20-23"});
  CHECK_THROWS_WITH(share_cores(read_cores(machine.root, {0, 1}), 1, Binding::numa, {1}),
                    Catch::Contains("the GPU of local rank 0 is at NUMA node 1, of which this job may use no core"));
}

TEST_CASE("ranks find their share in OMP_NUM_THREADS, with a line about it, unless it is set") {
  const auto here = read_cores("/", allowed_cpus());
  const int each = share_cores(here, 2, Binding::none, {}).front().threads;
  const auto two = run(job({"-n", "2"}, "echo $RONDO_CORES/$OMP_NUM_THREADS"), kFree);
  CHECK(two.out.find(fmt::format("[1] {}/{}\n", each, each)) != std::string::npos);
  CHECK(std::regex_match(two.err, std::regex("rondorun: 2 ranks share .*: OMP_NUM_THREADS is [^\n]*\n")));
  for (const std::string set : {"7", ""}) {
    const auto by_hand =
        run(job({"-n", "2"}, "echo ${OMP_NUM_THREADS-unset}."), {.environment = {"OMP_NUM_THREADS=" + set}});
    CHECK(by_hand.out.find("[1] " + set + ".\n") != std::string::npos);
    CHECK(by_hand.err.empty());
  }
  const auto one = run(job({}, "true"), kFree);
  CHECK(one.err.empty());
}

TEST_CASE("OpenMP takes no more threads for all ranks together than there are cores") {
  if (std::string(RONDO_OPENMP_PROGRAM).empty()) {
    WARN("no OpenMP for this compiler: what its runtime makes of the variable is not seen");
    return;
  }
  const auto ended = run(rondorun({"-n", "2", tool(RONDO_OPENMP_PROGRAM)}), kFree);
  CAPTURE(ended.out, ended.err);
  std::size_t threads = 0, ranks = 0;
  const std::regex line("threads ([0-9]+)");
  for (auto at = std::sregex_iterator(ended.out.begin(), ended.out.end(), line); at != std::sregex_iterator(); ++at) {
    threads += std::stoul((*at)[1]);
    ++ranks;
  }
  CHECK(ranks == 2);
  CHECK(threads <= std::max<std::size_t>(2, allowed_cpus().size()));
}

TEST_CASE("bound ranks run on their cores alone, and what cannot be bound is refused") {
  const auto here = read_cores("/", allowed_cpus());
  const std::string mask = "grep Cpus_allowed_list /proc/self/status";
  if (threads(share_cores(here, 1, Binding::none, {})).front() >= 2) {
    for (const Lists& flags : {Lists{"--bind", "core"}, Lists{"--numa_binding=exclusive"}}) {
      auto words = flags;
      words.insert(words.end(), {"-n", "2"});
      const auto ended = run(job(words, mask));
      const auto expected = share_cores(here, 2, Binding::core, {});
      CAPTURE(ended.out, ended.err);
      for (std::size_t rank = 0; rank < 2; ++rank)
        CHECK(ended.out.find(fmt::format("[{}] Cpus_allowed_list:\t{}\n", rank, cpu_list(expected[rank].cpus))) !=
              std::string::npos);
    }
  }
  const auto many = std::to_string(here.cpus.size() + 1);
  for (const auto& [words, sentence] : std::vector<std::pair<Lists, std::string>>{
           {{"-n", many, "--bind", "core"}, "ranks cannot be bound to"},
           {{"--bind", "socket"}, "--bind must be none, core or numa, not 'socket'"},
           {{"--numa-binding", "core"}, "--numa-binding must be node, socket, exclusive or core-complex, not 'core'"},
           {{"--numa-binding", "node", "--bind", "numa"}, "exclude each other"}}) {
    const auto ended = run(job(words, "true"));
    CAPTURE(ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.err.find(sentence) != std::string::npos);
  }
}

TEST_CASE("two jobs on one host are not bound to the same cores in silence") {
  Running first(job({"--bind", "numa"}, "echo ready; exec sleep 60"));
  first.lines("ready", 1);
  const auto free = run(job({}, "true"));
  CHECK(free.err.empty());
  const auto second = run(job({"--bind", "numa"}, "true"));
  CHECK(second.err.find("rondorun: ranks of another rondorun are bound to cores ") != std::string::npos);
  CHECK(second.code == 0);
  first.signal(SIGTERM);
  first.wait();
  CHECK(run(job({"--bind", "numa"}, "true")).err.empty());
}
