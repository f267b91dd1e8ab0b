// SPDX-License-Identifier: Apache-2.0
// rondorun --explain under every launcher of the table: what it takes from which variable, and that it starts nothing.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "runtime/launchers/environment.hpp"
#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using Texts = std::vector<std::string>;

struct File {  // of hosts, as PBS and Grid Engine write them
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("rondo-explain-hosts-" + std::to_string(::getpid()));
  File() { std::ofstream(path) << "a 4 all.q\nb 4 all.q\n"; }
  ~File() { std::filesystem::remove(path); }
};

struct Case {
  const char* launcher;
  Texts environment, flags, says;  // lines of the explanation, as they begin
  int code = 0;
  const char* refusal = "";  // a part of it
};

Ended explain(const Texts& environment, Texts flags) {
  flags.insert(flags.begin(), "--explain");
  return run(rondorun(flags), {.environment = environment});
}

bool has_line(const Ended& ended, const std::string& begin) {
  return ended.out.starts_with(begin) || ended.out.find("\n" + begin) != std::string::npos;
}

std::vector<Case> cases(const std::string& hosts) {
  const Texts secret{"--no-secret"}, by_hand{"--nnodes", "2", "--node-rank", "1", "--master-addr", "h", "--no-secret"};
  const Texts not_asked{"started by       not asked, as the nodes are given (--nnodes 2)",
                        "nodes            2, from --nnodes 2", "node rank        1, from --node-rank 1",
                        "node 0           h, from --master-addr h"};
  return {
      {"rondorun", {"RONDO_RENDEZVOUS=h:1", "RANK=1", "WORLD_SIZE=2"}, {}, {"nodes            1, from RONDO_REN"}},
      {"torchrun",
       {"TORCHELASTIC_RUN_ID=x", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=5"},
       {},
       {"without rondorun rank 1 of 2 (torchrun), meets at h:5, job x"},
       2,
       "WORLD_SIZE=2: each rank of torchrun's would start a world"},
      {"PyTorch's operators",
       {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=m", "PET_MASTER_PORT=29400", "PET_NPROC_PER_NODE=3"},
       secret,
       {"started by       PyTorch's operators, as PET_NNODES=2 says", "ranks here       3, from PET_NPROC_PER_NODE=3",
        "nodes            2, from PET_NNODES=2", "node rank        1, from PET_NODE_RANK=1",
        "world size       6 where every node has 3", "node 0           m, from PET_MASTER_ADDR=m",
        "port             29400, from PET_MASTER_PORT=29400", "secret           none"}},
      {"set by hand",
       {"RANK=2", "WORLD_SIZE=3", "MASTER_ADDR=m", "MASTER_PORT=7"},
       secret,
       {"nodes            3, from WORLD_SIZE=3", "node rank        2, from RANK=2",
        "node 0           m, from MASTER_ADDR=m", "port             7, from MASTER_PORT=7",
        "without rondorun rank 2 of 3 (set by hand), meets at m:7"}},
      {"Open MPI",
       {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "PMIX_NAMESPACE=17"},
       {"--master-addr", "m", "--no-secret"},
       {"nodes            2, from OMPI_COMM_WORLD_SIZE=2", "node rank        1, from OMPI_COMM_WORLD_RANK=1",
        "job              17, from PMIX_NAMESPACE=17", "node 0           m, from --master-addr m"}},
      {"MVAPICH", {"MV2_COMM_WORLD_RANK=0"}, {}, {}, 2, "MVAPICH (MV2_COMM_WORLD_RANK=0)"},
      {"PALS", {"PALS_RANKID=0"}, by_hand, not_asked},
      {"Flux", {"FLUX_TASK_RANK=0"}, by_hand, not_asked},
      {"LSF jsrun", {"JSM_NAMESPACE_RANK=0"}, by_hand, not_asked},
      {"MPICH",
       {"MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1", "PMI_RANK=1", "PMI_SIZE=2", "MASTER_ADDR=m"},
       secret,
       {"nodes            2, from PMI_SIZE=2", "node rank        1, from PMI_RANK=1",
        "node 0           m, from MASTER_ADDR=m"}},
      {"Slurm",
       {"SLURM_STEP_ID=0", "SLURM_JOB_ID=3", "SLURM_PROCID=1", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NUM_TASKS=2",
        "SLURM_STEP_NODELIST=n[7-8]"},
       secret,
       {"started by       Slurm, as SLURM_STEP_ID=0 says", "nodes            2, from SLURM_STEP_NUM_TASKS=2",
        "node rank        1, from SLURM_PROCID=1",
        "job              slurm.3.0, from SLURM_JOB_ID=3 and SLURM_STEP_ID=0",
        "node 0           n7, from SLURM_STEP_NODELIST=n[7-8]", "port             29817, from the job's name",
        "without rondorun rank 1 of 2 (Slurm), meets at n7:29500, job slurm.3.0"}},
      {"PMIx", {"PMIX_RANK=1"}, by_hand, not_asked},
      {"PMI", {"PMI_RANK=1"}, by_hand, not_asked},
      {"OpenPAI",
       {"PAI_CURRENT_TASK_ROLE_NAME=worker", "PAI_TASK_INDEX=1", "PAI_TASK_ROLE_TASK_COUNT_worker=2",
        "PAI_HOST_IP_worker_0=10.1.0.4", "PAI_worker_0_SynPort_PORT=34567", "PAI_JOB_NAME=cifar"},
       secret,
       {"nodes            2, from PAI_TASK_ROLE_TASK_COUNT_worker=2", "node rank        1, from PAI_TASK_INDEX=1",
        "job              cifar, from PAI_JOB_NAME=cifar",
        "node 0           10.1.0.4, from PAI_HOST_IP_worker_0=10.1.0.4",
        "port             34567, from PAI_worker_0_SynPort_PORT=34567"}},
      {"SageMaker",
       {R"(SM_HOSTS=["algo-1","algo-2"])", "SM_CURRENT_HOST=algo-2"},
       secret,
       {R"(nodes            2, from SM_HOSTS=["algo-1","algo-2"])", "node rank        1, from SM_CURRENT_HOST=algo-2",
        "node 0           algo-1, from SM_HOSTS"}},
      {"AWS Batch",
       {"AWS_BATCH_JOB_NUM_NODES=3", "AWS_BATCH_JOB_NODE_INDEX=0", "AWS_BATCH_JOB_MAIN_NODE_INDEX=2",
        "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.1", "AWS_BATCH_JOB_ID=j#0"},
       secret,
       {"nodes            3, from AWS_BATCH_JOB_NUM_NODES=3",
        "node rank        1, from AWS_BATCH_JOB_NODE_INDEX=0 after AWS_BATCH_JOB_MAIN_NODE_INDEX=2",
        "job              j, from AWS_BATCH_JOB_ID=j#0", "node 0           10.0.0.1, from AWS_BATCH_JOB_MAIN_NODE"}},
      {"Volcano", {"VC_TASK_INDEX=1"}, {}, {"without rondorun an error: "}, 2, "Volcano (VC_TASK_INDEX=1)"},
      {"a Kubernetes indexed Job",
       {"JOB_COMPLETION_INDEX=1"},
       {"--nnodes", "2", "--master-addr", "job-0.job", "--no-secret"},
       {"nodes            2, from --nnodes 2", "node rank        1, from JOB_COMPLETION_INDEX=1",
        "node 0           job-0.job, from --master-addr job-0.job"}},
      {"PBS", {"PBS_NODEFILE=" + hosts}, {}, {}, 2, "PBS_NODEFILE="},
      {"LSF", {"LSB_MCPU_HOSTS=a 4 b 4"}, {}, {}, 2, "LSB_MCPU_HOSTS=a 4 b 4"},
      {"Grid Engine", {"PE_HOSTFILE=" + hosts}, {}, {}, 2, "PE_HOSTFILE="},
  };
}

}  // namespace

TEST_CASE(
    "--explain says what comes from which variable under every launcher of the table, or refuses as a run would") {
  const File hosts;
  std::set<std::string> seen;
  for (const Case& each : cases(hosts.path)) {
    CAPTURE(each.launcher);
    seen.insert(each.launcher);
    auto flags = each.flags;
    flags.insert(flags.end(), {"sh", "-c", "echo started"});
    const Ended ended = explain(each.environment, flags);
    CAPTURE(ended.out, ended.err);
    CHECK(ended.code == each.code);
    CHECK(ended.err.find(each.refusal) != std::string::npos);
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == (each.code == 0 ? 0 : 1));
    for (const std::string& line : each.says) CHECK(has_line(ended, line));
    CHECK(ended.out.find("\nstarted") == std::string::npos);
    CHECK(has_line(ended, "without rondorun "));
    const auto lines = std::count(ended.out.begin(), ended.out.end(), '\n');
    CHECK(lines <= 12);
  }
  for (const std::string& launcher : rondo::runtime::known_launchers()) {
    INFO(launcher << " has a row, and no case here");
    CHECK(seen.contains(launcher));
  }
}

TEST_CASE("--explain without a scheduler: ranks, cores, threads and the secret of one host; no program is needed") {
  const Ended ended = explain({"OMP_NUM_THREADS="}, {"-n", "2"});
  CAPTURE(ended.out, ended.err);
  CHECK(ended.code == 0);
  CHECK(has_line(ended, "started by       none of rondorun, torchrun, "));
  CHECK(has_line(ended, "ranks here       2, from --nproc-per-node 2\n"));
  CHECK(has_line(ended, "cores here       "));
  CHECK(has_line(ended, "nodes            1, as nothing says that there are more\n"));
  CHECK(has_line(ended, "world size       2, the ranks here\n"));
  CHECK(has_line(ended, "secret           made for this run, inherited by the ranks\n"));
  CHECK(has_line(ended, "without rondorun a world of one\n"));
  CHECK(has_line(explain({"OMP_NUM_THREADS=3"}, {"-n", "2"}), "OMP_NUM_THREADS  3, as it is set\n"));
  CHECK(has_line(explain({"PET_NPROC_PER_NODE=2"}, {}), "ranks here       2, from PET_NPROC_PER_NODE=2\n"));
  CHECK(has_line(explain({}, {"--bind", "core"}), "cores here       "));
  CHECK(explain({}, {"--bind", "core"}).out.find("bound (--bind core): ") != std::string::npos);
}
