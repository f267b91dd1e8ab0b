// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchers/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include <rondo/error.hpp>

#include "runtime/launchers/node_schedulers.hpp"
#include "runtime/launchers/schedulers.hpp"

namespace rondo::runtime {
namespace {

// RANK, WORLD_SIZE and what comes with them mean the same under all launchers of this family.
Launch common(const Variables& variables, std::string_view launcher) {
  Launch launch{.launcher = std::string(launcher)};
  launch.world_size = static_cast<int>(number(variables, "WORLD_SIZE", 1, kMostRanks));
  launch.rank = static_cast<int>(number(variables, "RANK", 0, launch.world_size - 1));
  launch.local_rank = static_cast<int>(number_or(variables, "LOCAL_RANK", 0, launch.world_size - 1, -1));
  launch.nodes = static_cast<int>(number_or(variables, "GROUP_WORLD_SIZE", 1, launch.world_size, -1));
  launch.master_address = text_or(variables, "MASTER_ADDR", "");
  launch.master_port = static_cast<std::uint16_t>(number_or(variables, "MASTER_PORT", 1, 65535, 0));
  launch.master_port_taken = text_or(variables, "TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  launch.job = text_or(variables, "RONDO_JOB", "job");
  return launch;
}

Launch read_rondorun(const Variables& variables, std::string_view sign) {
  require(variables, "rondorun", sign, {"RANK", "WORLD_SIZE", "RONDO_RENDEZVOUS", "RONDO_JOB"});
  Launch launch = common(variables, "rondorun");
  parse_endpoint(variables.at("RONDO_RENDEZVOUS"), "RONDO_RENDEZVOUS=", launch.server_host, launch.server_port);
  launch.generation = static_cast<std::uint32_t>(number_or(variables, "RONDO_GENERATION", 0, 1L << 31, 0));
  launch.secret_fd = static_cast<int>(number_or(variables, "RONDO_SECRET_FD", 0, 1 << 24, -1));
  launch.calls_itself = text_or(variables, "RONDO_JOINS_AS", "");
  launch.joins_later = !launch.calls_itself.empty();
  return launch;
}

Launch read_torchrun(const Variables& variables, std::string_view sign) {
  require(variables, "torchrun", sign, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  Launch launch = common(variables, "torchrun");
  launch.job = text_or(variables, "RONDO_JOB", text_or(variables, "TORCHELASTIC_RUN_ID", "none"));
  launch.generation = static_cast<std::uint32_t>(number_or(variables, "TORCHELASTIC_RESTART_COUNT", 0, 1L << 31, 0));
  return launch;
}

Launch read_plain(const Variables& variables, std::string_view sign) {
  require(variables, "set by hand", sign, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  return common(variables, "set by hand");
}

using Signs = std::vector<std::string_view>;

struct Row {
  std::string_view launcher;
  Signs any_of;  // variables by which it is known
  bool all = false;
  Launch (*read)(const Variables&, std::string_view sign) = nullptr;  // null: not supported
  bool (*also)(const Variables&) = nullptr;                           // a further condition, of programs
  // Of a launcher that it starts on each node; null: not supported.
  NodeLaunch (*read_node)(const Variables&, std::string_view sign) = nullptr;
};

// The first that fits is taken: ours before others, what is complete before what is not supported.
const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"rondorun", {"RONDO_RENDEZVOUS", "RONDO_SECRET_FD"}, false, read_rondorun, nullptr, read_no_nodes},
      {"torchrun", {"TORCHELASTIC_RUN_ID"}, true, read_torchrun, nullptr, read_torchrun_node},
      {"PyTorch's operators", {"PET_NNODES", "PET_NODE_RANK"}, false, nullptr, several_pet_nodes, read_pet_node},
      {"set by hand", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}, true, read_plain, nullptr, read_plain_node},
      {"Open MPI",
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
       false,
       read_open_mpi,
       nullptr,
       read_open_mpi_node},
      {"MVAPICH",
       {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"}},
      {"PALS", {"PALS_RANKID", "PALS_NODEID", "PALS_LOCAL_RANKID", "PALS_APID"}},
      {"Flux", {"FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID"}},
      {"LSF jsrun",
       {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"}},
      // Before Slurm: MPICH's mpiexec in a Slurm job starts its helpers by srun, whose variables ranks inherit.
      {"MPICH", {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, false, read_hydra, nullptr, read_hydra_node},
      {"Slurm",
       {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
       false,
       read_slurm,
       several_slurm_tasks,
       read_slurm_node},
      {"PMIx", {"PMIX_RANK", "PMIX_NAMESPACE"}},
      {"PMI", {"PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT"}},
      {"OpenPAI",
       {"PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "PAI_TASK_INDEX", "PAI_CURRENT_TASK_ROLE_NAME", "PAI_JOB_NAME"},
       false,
       nullptr,
       nullptr,
       read_openpai_node},
      {"SageMaker", {"SM_HOSTS", "SM_CURRENT_HOST"}, false, nullptr, several_sagemaker_hosts, read_sagemaker_node},
      {"AWS Batch",
       {"AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX"},
       false,
       nullptr,
       several_batch_nodes,
       read_batch_node},
      {"Volcano", {"VC_TASK_INDEX", "VK_TASK_INDEX"}},
      {"a Kubernetes indexed Job", {"JOB_COMPLETION_INDEX"}, false, nullptr, nullptr, read_indexed_node},
      {"PBS", {"PBS_NODEFILE"}, false, nullptr, several_pbs_hosts, read_pbs_node},
      {"LSF", {"LSB_MCPU_HOSTS"}, false, nullptr, several_lsf_hosts, read_lsf_node},
      {"Grid Engine", {"PE_HOSTFILE"}, false, nullptr, several_grid_engine_hosts, read_grid_engine_node},
      {"set by hand",
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
       false,
       read_plain,
       nullptr,
       read_no_nodes},
  };
  return rows;
}

// The variable by which the row is known, or nothing.
std::string_view sign_of(const Row& row, const Variables& variables) {
  const auto present = [&](std::string_view name) { return has(variables, name); };
  const auto first = std::find_if(row.any_of.begin(), row.any_of.end(), present);
  if (first == row.any_of.end()) return {};
  if (row.all && !std::all_of(row.any_of.begin(), row.any_of.end(), present)) return {};
  return *first;
}

}  // namespace

std::optional<Launch> read_launch(const Variables& variables) {
  if (const std::string world = text_or(variables, "RONDO_WORLD", ""); !world.empty()) {
    if (world == "one") return std::nullopt;
    throw Error(ErrorCode::invalid_argument, fmt::format("RONDO_WORLD={} is unknown: it may be 'one' alone", world));
  }
  for (const Row& row : table()) {
    const std::string_view sign = sign_of(row, variables);
    if (sign.empty() || (row.also != nullptr && !row.also(variables))) continue;
    if (row.read != nullptr) return row.read(variables, sign);
    throw Error(ErrorCode::unsupported,
                fmt::format("this process was started by {} ({}={}), whose variables are not supported yet: let it "
                            "start rondorun on every node, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for "
                            "every process, or set RONDO_WORLD=one for a world of one",
                            row.launcher, sign, variables.find(sign)->second));
  }
  return std::nullopt;
}

Launch read_place(const Variables& variables) {
  Launch launch{.launcher = "the environment", .joins_later = true};
  launch.job = text_or(variables, "RONDO_JOB", text_or(variables, "TORCHELASTIC_RUN_ID", "job"));
  launch.calls_itself = text_or(variables, "RONDO_JOINS_AS", "");
  if (const auto server = variables.find("RONDO_RENDEZVOUS"); server != variables.end()) {
    parse_endpoint(server->second, "RONDO_RENDEZVOUS=", launch.server_host, launch.server_port);
    launch.generation = static_cast<std::uint32_t>(number_or(variables, "RONDO_GENERATION", 0, 1L << 31, 0));
    launch.secret_fd = static_cast<int>(number_or(variables, "RONDO_SECRET_FD", 0, 1 << 24, -1));
    return launch;
  }
  if (!has(variables, "MASTER_ADDR") || !has(variables, "MASTER_PORT")) {
    throw Error(ErrorCode::invalid_argument,
                "the environment does not say where to join: set RONDO_RENDEZVOUS=host:port and RONDO_JOB as the ranks "
                "of a rondorun have them, or MASTER_ADDR and MASTER_PORT, or give join() a tcp:// or file:// url");
  }
  launch.master_address = variables.at("MASTER_ADDR");
  launch.master_port = static_cast<std::uint16_t>(number(variables, "MASTER_PORT", 1, 65535));
  launch.master_port_taken = text_or(variables, "TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  launch.generation = static_cast<std::uint32_t>(number_or(variables, "TORCHELASTIC_RESTART_COUNT", 0, 1L << 31, 0));
  return launch;
}

std::optional<NodeLaunch> read_node_launch(const Variables& variables) {
  for (const Row& row : table()) {
    const std::string_view sign = sign_of(row, variables);
    if (sign.empty()) continue;
    const std::string said = fmt::format("{}={}", sign, variables.find(sign)->second);
    if (row.read_node == nullptr) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("{} ({}) started this, and its nodes cannot be read from its variables: give --nnodes, "
                              "--node-rank and --master-addr, or --nnodes 1 for a world of this node alone",
                              row.launcher, said));
    }
    NodeLaunch launch = row.read_node(variables, sign);
    launch.launcher = row.launcher;
    launch.sign = said;
    return launch;
  }
  return std::nullopt;
}

std::vector<std::string> known_launchers() {
  std::vector<std::string> names;
  for (const Row& row : table()) names.emplace_back(row.launcher);
  return names;
}

void parse_endpoint(const std::string& text, const std::string& before, std::string& host, std::uint16_t& port) {
  const auto colon = text.rfind(':');
  const bool bracketed = text.starts_with('[');
  std::string name = colon == std::string::npos ? "" : text.substr(0, colon);
  if (bracketed) name = name.ends_with(']') ? name.substr(1, name.size() - 2) : "";
  const bool usable = !name.empty() && name.find_first_of(bracketed ? "[]" : "[]:") == name.npos;
  int value = 0;
  if (usable) {
    const auto [end, status] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), value);
    if (status != std::errc() || end != text.data() + text.size()) value = 0;
  }
  if (value < 1 || value > 65535) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}{} is not host:port, with an IPv6 address in brackets and "
                                                         "a port from 1 to 65535",
                                                         before, text));
  }
  host = std::move(name);
  port = static_cast<std::uint16_t>(value);
}

}  // namespace rondo::runtime
