// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchers/schedulers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include <rondo/error.hpp>

#include "comm/base/machine.hpp"
#include "runtime/launchers/host_list.hpp"

namespace rondo::runtime {
namespace {

// What a scheduler says of a process, by the names of its variables.
struct SchedulerNames {
  const char *rank, *size, *local_rank, *local_size;
};

// Schedulers do not choose an address. On one node none is needed; nor is a port, but as a part of the meeting's name.
// The first host is asked for only when it matters.
template <class FirstHost>
void place_rank_0(Launch& launch, const Variables& variables, FirstHost first_host) {
  constexpr long kDefaultPort = 29500;
  launch.master_port = static_cast<std::uint16_t>(number_or(variables, "MASTER_PORT", 1, 65535, kDefaultPort));
  launch.master_address = text_or(variables, "MASTER_ADDR", launch.nodes == 1 ? "127.0.0.1" : "");
  if (launch.master_address.empty()) launch.master_address = first_host();
}

[[noreturn]] void refuse_place(std::string_view launcher, std::string_view cause) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} started this job on several nodes and does not say where rank 0 is{}: set MASTER_ADDR "
                          "(and MASTER_PORT, 29500 otherwise) to an address of that node for every process, or let it "
                          "start rondorun on every node",
                          launcher, cause));
}

// How many of the ranks are here says whether there are other nodes; -1 where it is not said.
int nodes_of(const Variables& variables, const char* local_size, int world_size) {
  if (!has(variables, local_size)) return -1;
  return number(variables, local_size, 1, world_size) == world_size ? 1 : 2;  // or more, which is the same to us
}

Launch of_scheduler(const Variables& variables, std::string_view launcher, const SchedulerNames& names) {
  Launch launch{.launcher = std::string(launcher)};
  launch.world_size = static_cast<int>(number(variables, names.size, 1, kMostRanks));
  launch.rank = static_cast<int>(number(variables, names.rank, 0, launch.world_size - 1));
  launch.local_rank = static_cast<int>(number_or(variables, names.local_rank, 0, launch.world_size - 1, -1));
  return launch;
}

Launch of_mpi(const Variables& variables, std::string_view launcher, std::string_view sign,
              const SchedulerNames& names) {
  require(variables, launcher, sign, {names.rank, names.size});
  Launch launch = of_scheduler(variables, launcher, names);
  launch.nodes = nodes_of(variables, names.local_size, launch.world_size);
  place_rank_0(launch, variables, [&]() -> std::string {
    if (launch.nodes > 0) refuse_place(launcher, "");
    require(variables, launcher, sign, {names.rank, names.size, names.local_size});
    return {};
  });
  return launch;
}

// "2(x3),1": seven tasks; nothing when it is no such list.
std::optional<long> sum_of_tasks(std::string_view list) {
  long sum = 0;
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    long tasks = 0, times = 1;
    int end = 0;
    const std::string text(entry);
    const bool repeated = std::sscanf(text.c_str(), "%6ld(x%6ld)%n", &tasks, &times, &end) == 2;
    if (!repeated && std::sscanf(text.c_str(), "%6ld%n", &tasks, &end) != 1) return std::nullopt;
    if (end != static_cast<int>(text.size()) || tasks < 1 || times < 1) return std::nullopt;
    sum += tasks * times;
  }
  return sum;
}

// Of this step, or of the job whose batch script this is.
std::optional<long> slurm_tasks(const Variables& variables) {
  for (const std::string_view name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) {
    if (has(variables, name)) return number(variables, name, 1, kMostRanks);
  }
  for (const std::string_view name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (has(variables, name)) return sum_of_tasks(variables.find(name)->second);
  }
  return std::nullopt;
}

// A batch script's own process, where the job has several tasks.
void refuse_batch_script(const Variables& variables) {
  if (!has(variables, "SLURM_PROCID") || has(variables, "SLURM_STEP_ID") || has(variables, "SLURM_STEP_NUM_TASKS")) {
    return;
  }
  const auto tasks = slurm_tasks(variables);
  throw Error(
      ErrorCode::unsupported,
      fmt::format("this process was started by Slurm (SLURM_PROCID={}) as the script of a job {}, and not as a "
                  "task of a step (SLURM_STEP_ID is not set): start the program with srun, or let it start "
                  "rondorun on every node, or set RONDO_WORLD=one for a world of one",
                  variables.find("SLURM_PROCID")->second,
                  tasks ? fmt::format("of {} tasks", *tasks) : "that does not say its number of tasks (SLURM_NTASKS)"));
}

}  // namespace

// In an order of the user's own they begin anywhere.
std::string first_slurm_host(const Variables& variables) {
  constexpr std::string_view kList = "SLURM_STEP_NODELIST";
  if (text_or(variables, "SLURM_DISTRIBUTION", "").find("arbitrary") != std::string::npos) {
    refuse_place("Slurm", " (SLURM_DISTRIBUTION is arbitrary)");
  }
  if (!has(variables, kList)) refuse_place("Slurm", fmt::format(" ({} is not set)", kList));
  return HostList(variables.find(kList)->second, kList).at(0);
}

// The namespace is the job's, unlike everything else in the environment of two jobs on one host.
Launch read_open_mpi(const Variables& variables, std::string_view sign) {
  Launch launch = of_mpi(
      variables, "Open MPI", sign,
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  launch.job = text_or(variables, "RONDO_JOB", text_or(variables, "PMIX_NAMESPACE", "job"));
  return launch;
}

Launch read_hydra(const Variables& variables, std::string_view sign) {
  require(variables, "MPICH", sign, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  Launch launch = of_mpi(variables, "MPICH", sign, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  // MPICH tells its ranks no name. On one node they have one proxy above them, on several what the scheduler says.
  std::string job = launch.nodes == 1 ? ancestor_identity("hydra_pmi_proxy") : "";
  for (const std::string_view name : {"PBS_JOBID", "LSB_JOBID", "SLURM_JOB_ID"})
    if (job.empty()) job = text_or(variables, name, "");
  if (job.empty()) job = "job";
  launch.job = text_or(variables, "RONDO_JOB", text_or(variables, "PMI_JOBID", job));
  return launch;
}

bool several_slurm_tasks(const Variables& variables) {
  return slurm_tasks(variables) != 1 || text_or(variables, "SLURM_PROCID", "0") != "0";
}

Launch read_slurm(const Variables& variables, std::string_view sign) {
  refuse_batch_script(variables);
  require(variables, "Slurm", sign,
          {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_JOB_ID", "SLURM_STEP_ID"});
  Launch launch = of_scheduler(variables, "Slurm", {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr});
  launch.nodes = static_cast<int>(number(variables, "SLURM_STEP_NUM_NODES", 1, launch.world_size));
  place_rank_0(launch, variables, [&] { return first_slurm_host(variables); });
  launch.job = text_or(variables, "RONDO_JOB",
                       fmt::format("slurm.{}.{}", variables.at("SLURM_JOB_ID"), variables.at("SLURM_STEP_ID")));
  launch.generation = static_cast<std::uint32_t>(number_or(variables, "SLURM_RESTART_COUNT", 0, 1L << 31, 0));
  return launch;
}

}  // namespace rondo::runtime
