// SPDX-License-Identifier: Apache-2.0
// What rondorun finds of GPUs, in folders that look like a machine with some, and what it makes of them.
#include "tools/rondorun/gpus.hpp"

#include <unistd.h>
#include <csignal>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {

using namespace rondo::launcher;
using namespace rondo::test;
using Words = std::vector<std::string>;

class Machine {
 public:
  void listed(const Words& addresses) const {
    for (const auto& address : addresses)
      std::filesystem::create_directories(root / "proc/driver/nvidia/gpus" / address);
  }
  void nodes(const Words& names) const {
    std::filesystem::create_directories(root / "dev");
    for (const auto& name : names) std::ofstream(root / "dev" / name) << "";
  }
  const std::filesystem::path& root = folder_.path;

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("GPUs are what the driver lists, or the nodes that a container was given") {
  const Machine bare, driver, container;
  CHECK(visible_gpus(bare.root, {}).empty());
  driver.listed({"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"});
  CHECK(visible_gpus(driver.root, {}) == Words{"0", "1", "2"});
  container.listed({"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"});
  container.nodes({"nvidia0", "nvidia2", "nvidiactl", "nvidia-uvm", "null", "nvidia"});
  CHECK(visible_gpus(container.root, {}) == Words{"0", "1"});
}

TEST_CASE("CUDA_VISIBLE_DEVICES is read as CUDA reads it") {
  const Machine machine;
  machine.listed({"a", "b", "c", "d"});
  CHECK(visible_gpus(machine.root, "2, 0") == Words{"2", "0"});
  CHECK(visible_gpus(machine.root, "").empty());
  CHECK(visible_gpus(machine.root, "1,-1,2") == Words{"1"});
  CHECK(visible_gpus(machine.root, "1,7,2") == Words{"1"});
  CHECK(visible_gpus(machine.root, "GPU-8f,MIG-1/2/3") == Words{"GPU-8f", "MIG-1/2/3"});
  CHECK(visible_gpus(machine.root, "none").empty());
}

TEST_CASE("ranks get their GPUs in order and begin again where these are fewer") {
  const Words gpus{"4", "5", "6", "7"};
  CHECK(gpus_of_rank(gpus, 0, 1) == "4");
  CHECK(gpus_of_rank(gpus, 5, 1) == "5");
  CHECK(gpus_of_rank(gpus, 1, 2) == "6,7");
  CHECK(gpus_of_rank(gpus, 2, 2) == "4,5");
}

TEST_CASE("sharing is said, and nothing where there is nothing to share") {
  CHECK(sharing_sentence(4, 0, 0).empty());
  CHECK(sharing_sentence(4, 4, 0).empty());
  CHECK(sharing_sentence(2, 4, 2).empty());
  CHECK(sharing_sentence(4, 1, 0) == "4 ranks and 1 GPU on this node: ranks that use a GPU share it, 4 on each");
  CHECK(sharing_sentence(5, 2, 0) == "5 ranks and 2 GPUs on this node: ranks that use a GPU share it, up to 3 on each");
  CHECK(sharing_sentence(3, 4, 2) == "3 ranks and 4 GPUs on this node: ranks that use a GPU share it, up to 2 on each");
}

TEST_CASE("--gpus-per-rank sets CUDA_VISIBLE_DEVICES, which is left alone otherwise") {
  const Running::How two{.environment = {"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"}};
  const Words script{"--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"};
  auto command = rondorun({"--nproc-per-node", "3", "--gpus-per-rank", "1"});
  command.insert(command.end(), script.begin(), script.end());
  const auto bound = run(command, two);
  INFO(bound.out << bound.err);
  CHECK(bound.code == 0);
  for (const char* line : {"[0] GPU-a\n", "[1] GPU-b\n", "[2] GPU-a\n"})
    CHECK(bound.out.find(line) != std::string::npos);
  CHECK(bound.err == "rondorun: 3 ranks and 2 GPUs on this node: ranks that use a GPU share it, up to 2 on each\n");

  auto plain = rondorun({"--nproc-per-node", "gpu"});
  plain.insert(plain.end(), script.begin(), script.end());
  const auto free = run(plain, two);
  CHECK(free.err.empty());
  for (const char* line : {"[0] GPU-a,GPU-b\n", "[1] GPU-a,GPU-b\n"}) CHECK(free.out.find(line) != std::string::npos);

  const auto many = run(rondorun({"--gpus-per-rank", "3", "true"}), two);
  CHECK(many.code == 2);
  CHECK(many.err == "rondorun: --gpus-per-rank 3: this node has 2 GPUs to give\n");
  const auto none = run(rondorun({"--nproc-per-node", "gpu", "true"}), {.environment = {"CUDA_VISIBLE_DEVICES="}});
  CHECK(none.code == 2);
  CHECK(none.err.find("no GPU is found on this node") != std::string::npos);
}

TEST_CASE(
    "--mps runs the control daemon in a folder of its own for as long as the job, and says where it is not there") {
  const TemporaryFolder folder;
  const auto said = folder.path / "said";
  {
    std::ofstream fake(folder.path / "nvidia-cuda-mps-control");
    fake << "#!/bin/sh\n"
            "[ -d \"$CUDA_MPS_PIPE_DIRECTORY\" ] && [ -d \"$CUDA_MPS_LOG_DIRECTORY\" ] || exit 3\n"
            "if [ \"$1\" = -d ]; then echo \"began $CUDA_MPS_PIPE_DIRECTORY\" >> "
         << said.string()
         << "; exit; fi\n"
            "read word; echo \"$word $CUDA_MPS_PIPE_DIRECTORY\" >> "
         << said.string() << "\n";
  }
  std::filesystem::permissions(folder.path / "nvidia-cuda-mps-control", std::filesystem::perms::owner_all);
  const std::string path = "PATH=" + folder.path.string() + ":/usr/bin:/bin";
  const auto job =
      run(rondorun({"--mps", "--failure-dir", "none", "--", "sh", "-c", "echo at $CUDA_MPS_PIPE_DIRECTORY; exit 5"}),
          {.environment = {path, "CUDA_MPS_PIPE_DIRECTORY=/elsewhere"}});
  INFO(job.out << job.err);
  CHECK(job.code == 5);
  const std::string at = job.out.substr(job.out.find("at ") + 3, job.out.find('\n') - job.out.find("at ") - 3);
  CHECK(at.ends_with("/pipe"));
  std::ifstream file(said);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  CHECK(all == "began " + at + "\nquit " + at + "\n");
  CHECK_FALSE(std::filesystem::exists(std::filesystem::path(at).parent_path()));

  Running killed(
      rondorun({"--mps", "--failure-dir", "none", "--", "sh", "-c", "echo at $CUDA_MPS_PIPE_DIRECTORY; exec sleep 60"}),
      {.environment = {path}});
  const std::string its = killed.lines("at ", 1).front();
  killed.signal(SIGKILL);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::filesystem::exists(std::filesystem::path(its).parent_path()) &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  CHECK_FALSE(std::filesystem::exists(std::filesystem::path(its).parent_path()));
  std::ifstream later(said);
  CHECK(std::string{std::istreambuf_iterator<char>(later), {}} == all + "began " + its + "\nquit " + its + "\n");

  const auto none = run(rondorun({"--mps", "true"}), {.environment = {"PATH=" + (folder.path / "none").string()}});
  CHECK(none.code == 1);
  CHECK(none.err ==
        "rondorun: --mps: nvidia-cuda-mps-control cannot be started (No such file or directory); it comes with "
        "NVIDIA's driver, and must be on the PATH\n");
}
