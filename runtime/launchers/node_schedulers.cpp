// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchers/node_schedulers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include <rondo/error.hpp>

#include "comm/setup/bootstrap.hpp"
#include "runtime/launchers/host_list.hpp"
#include "runtime/launchers/schedulers.hpp"

namespace rondo::runtime {
namespace {

constexpr long kMostNodes = 65536;
constexpr std::string_view kOncePerNode =
    "several launchers are on one node: start rondorun once on each, and give it --nproc-per-node";

[[noreturn]] void refuse(const Variables& variables, std::string_view sign, std::string_view why) {
  const auto found = variables.find(sign);
  throw Error(ErrorCode::unsupported, fmt::format("{}{}: {}, or give --nnodes 1 for a world of this node alone", sign,
                                                  found == variables.end() ? "" : "=" + found->second, why));
}

NodeLaunch at_master(const Variables& variables, NodeLaunch launch) {
  launch.master_address.prefer(said_text(variables, "MASTER_ADDR"));
  launch.master_port.prefer(said_port(variables, "MASTER_PORT"));
  return launch;
}

struct TaskNames {
  std::string_view rank, size, local_size;  // no local_size: each task is on a node of its own
};

// Every task is a launcher, so each node may have one.
NodeLaunch of_tasks(const Variables& variables, std::string_view sign, const TaskNames& names) {
  for (const std::string_view name : {names.size, names.rank}) {
    if (!has(variables, name))
      refuse(variables, sign, fmt::format("{} is not set: give --nnodes, --node-rank and --master-addr", name));
  }
  NodeLaunch launch{.nodes = said_number(variables, names.size, 1, kMostNodes)};
  const int nodes = launch.nodes.value;
  launch.node = said_number(variables, names.rank, 0, nodes - 1);
  if (nodes > 1 && !names.local_size.empty() && number_or(variables, names.local_size, 1, nodes, 1) > 1) {
    refuse(variables, names.local_size, kOncePerNode);
  }
  return at_master(variables, launch);
}

// Of a scheduler that starts one process, on the first of its hosts.
NodeLaunch of_one_process(const Variables& variables, std::string_view sign, bool several, std::string_view remedy) {
  if (several) refuse(variables, sign, remedy);
  return {};
}

std::set<std::string> hosts_in_file(const Variables& variables, std::string_view name) {
  std::set<std::string> hosts;
  std::ifstream in(text_or(variables, name, ""));
  for (std::string line, host; std::getline(in, line);) {
    if (std::istringstream(line) >> host) hosts.insert(host);
  }
  return hosts;
}

// "a 4 b 4"
std::set<std::string> lsf_hosts(const Variables& variables) {
  std::set<std::string> hosts;
  std::istringstream in(text_or(variables, "LSB_MCPU_HOSTS", ""));
  for (std::string host, slots; in >> host >> slots;) hosts.insert(host);
  return hosts;
}

// ["algo-1","algo-2"]
std::vector<std::string> sagemaker_hosts(const Variables& variables) {
  const std::string text = text_or(variables, "SM_HOSTS", "");
  std::vector<std::string> hosts;
  for (std::size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 1)) {
    const std::size_t end = text.find('"', at + 1);
    if (end == std::string::npos) break;
    hosts.push_back(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return hosts;
}

// The file names each host as often as it has slots.
std::string from_one_place(std::string_view file) {
  return fmt::format(
      "the job has several hosts: give --hostfile ${} to have rondorun started on each by ssh, or start "
      "it there with --nnodes, --node-rank and --master-addr",
      file);
}

}  // namespace

NodeLaunch read_no_nodes(const Variables& /*variables*/, std::string_view /*sign*/) { return {}; }

NodeLaunch read_torchrun_node(const Variables& variables, std::string_view /*sign*/) {
  return of_one_process(variables, "WORLD_SIZE", number_or(variables, "WORLD_SIZE", 1, kMostRanks, 1) > 1,
                        "each rank of torchrun's would start a world: start the program by one of the two launchers");
}

NodeLaunch read_plain_node(const Variables& variables, std::string_view sign) {
  return of_tasks(variables, sign, {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"});
}

NodeLaunch read_open_mpi_node(const Variables& variables, std::string_view sign) {
  NodeLaunch launch =
      of_tasks(variables, sign, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  launch.job = said_text(variables, "PMIX_NAMESPACE");
  return launch;
}

NodeLaunch read_hydra_node(const Variables& variables, std::string_view sign) {
  NodeLaunch launch = of_tasks(variables, sign, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"});
  launch.job = said_text(variables, "PMI_JOBID");
  return launch;
}

// A task of a step; else a job's script, or a shell within an allocation.
NodeLaunch read_slurm_node(const Variables& variables, std::string_view sign) {
  if (!has(variables, "SLURM_STEP_ID") && !has(variables, "SLURM_STEP_NUM_TASKS")) {
    constexpr std::string_view kNodes = "SLURM_JOB_NUM_NODES";
    return of_one_process(variables, kNodes, number_or(variables, kNodes, 1, kMostNodes, 1) > 1,
                          "start it on each of them by `srun --ntasks-per-node=1 rondorun …`");
  }
  NodeLaunch launch = of_tasks(variables, sign, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""});
  if (launch.nodes.value == 1) return launch;
  if (number_or(variables, "SLURM_STEP_NUM_NODES", 1, kMostNodes, 0) != launch.nodes.value)
    refuse(variables, "SLURM_STEP_NUM_TASKS", fmt::format("{} (srun --ntasks-per-node=1)", kOncePerNode));
  if (launch.master_address.value.empty())
    launch.master_address = {first_slurm_host(variables), entry(variables, "SLURM_STEP_NODELIST")};
  const auto job = said_text(variables, "SLURM_JOB_ID"), step = said_text(variables, "SLURM_STEP_ID");
  launch.job = {fmt::format("slurm.{}.{}", job.value, step.value), fmt::format("{} and {}", job.by, step.by)};
  return launch;
}

// The tasks of this process's role are the nodes.
NodeLaunch read_openpai_node(const Variables& variables, std::string_view sign) {
  const std::string role = text_or(variables, "PAI_CURRENT_TASK_ROLE_NAME", "worker");
  const std::string index =
      has(variables, "PAI_TASK_INDEX") ? "PAI_TASK_INDEX" : "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX";
  NodeLaunch launch = of_tasks(variables, sign, {index, "PAI_TASK_ROLE_TASK_COUNT_" + role, ""});
  if (launch.master_address.value.empty()) launch.master_address = said_text(variables, "PAI_HOST_IP_" + role + "_0");
  if (launch.master_port.value == 0) launch.master_port = said_port(variables, "PAI_" + role + "_0_SynPort_PORT");
  launch.job = said_text(variables, "PAI_JOB_NAME");
  return launch;
}

// How many there are is not said.
NodeLaunch read_indexed_node(const Variables& variables, std::string_view sign) {
  NodeLaunch launch;
  launch.nodes.value = 0;
  launch.node = said_number(variables, sign, 0, kMostNodes - 1);
  return at_master(variables, launch);
}

namespace {

// "2", or "2:4" as --nnodes has it.
void read_pet_nodes(const Variables& variables, NodeLaunch& launch) {
  const std::string text = text_or(variables, "PET_NNODES", "1");
  const std::size_t colon = text.find(':');
  const auto count = [](const std::string& word) {
    return static_cast<int>(number({{"PET_NNODES", word}}, "PET_NNODES", 1, kMostNodes));
  };
  const int least = count(text.substr(0, colon)), most = colon == text.npos ? least : count(text.substr(colon + 1));
  if (most < least) refuse(variables, "PET_NNODES", "it says more nodes at least than at most: give --nnodes MIN:MAX");
  launch.nodes = {most, entry(variables, "PET_NNODES")};
  if (least < most) launch.least_nodes = least;
}

}  // namespace

// A program that is told the rest by hand, too, is a rank.
bool several_pet_nodes(const Variables& variables) {
  const bool by_hand = has(variables, "RANK") && has(variables, "WORLD_SIZE") && has(variables, "MASTER_ADDR") &&
                       has(variables, "MASTER_PORT");
  return !by_hand && (text_or(variables, "PET_NNODES", "1") != "1" || text_or(variables, "PET_NODE_RANK", "0") != "0");
}

NodeLaunch read_pet_node(const Variables& variables, std::string_view /*sign*/) {
  NodeLaunch launch;
  read_pet_nodes(variables, launch);
  if (has(variables, "PET_NODE_RANK")) launch.node = said_number(variables, "PET_NODE_RANK", 0, kMostNodes - 1);
  if (launch.least_nodes == 0 && launch.node.value >= launch.nodes.value)
    refuse(variables, "PET_NODE_RANK", fmt::format("PET_NNODES says {}: give --nnodes", launch.nodes.value));
  launch.local_size = said_text(variables, "PET_NPROC_PER_NODE");
  launch.job = said_text(variables, "PET_RDZV_ID");
  if (const auto endpoint = said_text(variables, "PET_RDZV_ENDPOINT"); !endpoint.value.empty()) {
    launch.master_address.by = launch.master_port.by = endpoint.by;
    parse_endpoint(endpoint.value, "PET_RDZV_ENDPOINT=", launch.master_address.value, launch.master_port.value);
  }
  launch = at_master(variables, launch);
  launch.master_address.prefer(said_text(variables, "PET_MASTER_ADDR"));
  launch.master_port.prefer(said_port(variables, "PET_MASTER_PORT"));
  return launch;
}

bool several_sagemaker_hosts(const Variables& variables) { return sagemaker_hosts(variables).size() > 1; }

NodeLaunch read_sagemaker_node(const Variables& variables, std::string_view sign) {
  const auto hosts = sagemaker_hosts(variables);
  if (hosts.size() < 2) return {};
  const auto own = std::find(hosts.begin(), hosts.end(), text_or(variables, "SM_CURRENT_HOST", ""));
  if (own == hosts.end()) refuse(variables, sign, "SM_CURRENT_HOST is none of them: give --nnodes and --node-rank");
  const std::string list = entry(variables, "SM_HOSTS");
  NodeLaunch launch{.nodes = {static_cast<int>(hosts.size()), list},
                    .node = {static_cast<int>(own - hosts.begin()), entry(variables, "SM_CURRENT_HOST")}};
  launch.master_address = {hosts.front(), list};
  launch.job = said_text(variables, "TRAINING_JOB_NAME");
  return at_master(variables, launch);
}

bool several_batch_nodes(const Variables& variables) {
  return number_or(variables, "AWS_BATCH_JOB_NUM_NODES", 1, kMostNodes, 1) > 1;
}

// The main node is not told its own address.
NodeLaunch read_batch_node(const Variables& variables, std::string_view sign) {
  NodeLaunch launch = of_tasks(variables, sign, {"AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES", ""});
  constexpr std::string_view kMain = "AWS_BATCH_JOB_MAIN_NODE_INDEX";
  const int nodes = launch.nodes.value;
  if (const int main = static_cast<int>(number_or(variables, kMain, 0, nodes - 1, 0)); main != 0)
    launch.node = {(launch.node.value - main + nodes) % nodes,
                   fmt::format("{} after {}", launch.node.by, entry(variables, kMain))};
  if (launch.master_address.value.empty())
    launch.master_address = said_text(variables, "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS");
  launch.job = said_text(variables, "AWS_BATCH_JOB_ID");
  launch.job.value = launch.job.value.substr(0, launch.job.value.find('#'));
  return launch;
}

bool several_pbs_hosts(const Variables& variables) { return hosts_in_file(variables, "PBS_NODEFILE").size() > 1; }
NodeLaunch read_pbs_node(const Variables& variables, std::string_view sign) {
  return of_one_process(variables, sign, several_pbs_hosts(variables), from_one_place("PBS_NODEFILE"));
}

bool several_lsf_hosts(const Variables& variables) { return lsf_hosts(variables).size() > 1; }
NodeLaunch read_lsf_node(const Variables& variables, std::string_view sign) {
  return of_one_process(variables, sign, several_lsf_hosts(variables), from_one_place("LSB_DJOB_HOSTFILE"));
}

bool several_grid_engine_hosts(const Variables& variables) {
  return hosts_in_file(variables, "PE_HOSTFILE").size() > 1;
}
NodeLaunch read_grid_engine_node(const Variables& variables, std::string_view sign) {
  return of_one_process(variables, sign, several_grid_engine_hosts(variables), from_one_place("PE_HOSTFILE"));
}

}  // namespace rondo::runtime
