// SPDX-License-Identifier: Apache-2.0
#include "runtime/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"

namespace rondo::runtime {
namespace {

constexpr long kMostRanks = 1 << 20;

bool has(const Variables& variables, std::string_view name) { return variables.contains(name); }

long number(const Variables& variables, std::string_view name, long low, long high) {
  const std::string& text = variables.find(name)->second;
  long value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}={} is not a whole number from {} to {}", name, text, low, high));
  }
  return value;
}
long number_or(const Variables& variables, std::string_view name, long low, long high, long otherwise) {
  return has(variables, name) ? number(variables, name, low, high) : otherwise;
}
std::string text_or(const Variables& variables, std::string_view name, const char* otherwise) {
  const auto found = variables.find(name);
  return found == variables.end() ? otherwise : found->second;
}

void require(const Variables& variables, std::string_view launcher, std::initializer_list<std::string_view> names) {
  std::string present, absent;
  for (const std::string_view name : names) {
    std::string& list = has(variables, name) ? present : absent;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  }
  if (absent.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the environment ({}) has {} but not {}: set all of RANK, WORLD_SIZE, MASTER_ADDR and "
                          "MASTER_PORT, or start the program with rondorun, or unset them for a world of one",
                          launcher, present.empty() ? "its own variables" : present, absent));
}

// RANK, WORLD_SIZE and what comes with them mean the same under all launchers of this family.
Launch common(const Variables& variables, std::string_view launcher) {
  Launch launch{.launcher = std::string(launcher)};
  launch.world_size = static_cast<int>(number(variables, "WORLD_SIZE", 1, kMostRanks));
  launch.rank = static_cast<int>(number(variables, "RANK", 0, launch.world_size - 1));
  launch.local_rank = static_cast<int>(number_or(variables, "LOCAL_RANK", 0, launch.world_size - 1, -1));
  launch.nodes = static_cast<int>(number_or(variables, "GROUP_WORLD_SIZE", 1, launch.world_size, -1));
  launch.master_address = text_or(variables, "MASTER_ADDR", "");
  launch.master_port = static_cast<std::uint16_t>(number_or(variables, "MASTER_PORT", 1, 65535, 0));
  launch.job = text_or(variables, "RONDO_JOB", "job");
  return launch;
}

Launch read_rondorun(const Variables& variables) {
  require(variables, "rondorun", {"RANK", "WORLD_SIZE", "RONDO_RENDEZVOUS", "RONDO_JOB"});
  Launch launch = common(variables, "rondorun");
  parse_endpoint(variables.at("RONDO_RENDEZVOUS"), "RONDO_RENDEZVOUS", launch.server_host, launch.server_port);
  launch.generation = static_cast<std::uint32_t>(number_or(variables, "RONDO_GENERATION", 0, 1L << 31, 0));
  launch.secret_fd = static_cast<int>(number_or(variables, "RONDO_SECRET_FD", 0, 1 << 24, -1));
  return launch;
}

Launch read_torchrun(const Variables& variables) {
  require(variables, "torchrun", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  Launch launch = common(variables, "torchrun");
  launch.job = text_or(variables, "RONDO_JOB", variables.at("TORCHELASTIC_RUN_ID").c_str());
  launch.generation = static_cast<std::uint32_t>(number_or(variables, "TORCHELASTIC_RESTART_COUNT", 0, 1L << 31, 0));
  launch.master_port_taken = text_or(variables, "TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  return launch;
}

Launch read_plain(const Variables& variables) {
  require(variables, "set by hand", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  return common(variables, "set by hand");
}

// What a scheduler says of a process, by the names of its variables.
struct SchedulerNames {
  const char *rank, *size, *local_rank, *local_size;
};

// Schedulers do not choose an address. On one node none is needed; nor is a port, but as a part of the meeting's name.
void place_rank_0(Launch& launch, const Variables& variables, const std::string& first_host) {
  constexpr long kDefaultPort = 29500;
  launch.master_address = text_or(variables, "MASTER_ADDR", launch.nodes == 1 ? "127.0.0.1" : first_host.c_str());
  launch.master_port = static_cast<std::uint16_t>(number_or(variables, "MASTER_PORT", 1, 65535, kDefaultPort));
  if (!launch.master_address.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} started this job on several nodes and does not say where rank 0 is: set MASTER_ADDR (and "
                          "MASTER_PORT, 29500 otherwise) to an address of that node for every process, or let it start "
                          "rondorun on every node",
                          launch.launcher));
}

Launch of_scheduler(const Variables& variables, std::string_view launcher, const SchedulerNames& names) {
  Launch launch{.launcher = std::string(launcher)};
  launch.world_size = static_cast<int>(number(variables, names.size, 1, kMostRanks));
  launch.rank = static_cast<int>(number(variables, names.rank, 0, launch.world_size - 1));
  launch.local_rank = static_cast<int>(number_or(variables, names.local_rank, 0, launch.world_size - 1, -1));
  const long here = number_or(variables, names.local_size, 1, launch.world_size, 1);
  launch.nodes = here == launch.world_size ? 1 : 2;  // or more: it only matters whether there are others
  return launch;
}

// The namespace is the job's, unlike everything else in the environment of two jobs on one host.
Launch read_open_mpi(const Variables& variables) {
  Launch launch = of_scheduler(
      variables, "Open MPI",
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  place_rank_0(launch, variables, "");
  launch.job = text_or(variables, "RONDO_JOB", text_or(variables, "PMIX_NAMESPACE", "job").c_str());
  return launch;
}

Launch read_hydra(const Variables& variables) {
  Launch launch = of_scheduler(variables, "MPICH", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  place_rank_0(launch, variables, "");
  launch.job = text_or(variables, "RONDO_JOB", text_or(variables, "PMI_JOBID", "job").c_str());
  return launch;
}

// "n[07-9,12],m3" -> "n07": the node that task 0 runs on, as Slurm distributes tasks.
std::string first_host(const std::string& list) {
  const auto bracket = list.find('[');
  const auto comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  return list.substr(0, bracket) + list.substr(bracket + 1, list.find_first_of("-,]", bracket) - bracket - 1);
}

Launch read_slurm(const Variables& variables) {
  require(variables, "Slurm", {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_STEP_ID"});
  Launch launch = of_scheduler(variables, "Slurm",
                               {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"});
  launch.nodes = static_cast<int>(number_or(variables, "SLURM_STEP_NUM_NODES", 1, launch.world_size, 1));
  const auto list = text_or(variables, "SLURM_STEP_NODELIST", "");
  // Tasks in an order of the user's own begin anywhere.
  const bool in_order = text_or(variables, "SLURM_DISTRIBUTION", "").find("arbitrary") == std::string::npos;
  place_rank_0(launch, variables, in_order ? first_host(list) : "");
  launch.job = text_or(variables, "RONDO_JOB",
                       fmt::format("slurm.{}.{}", variables.at("SLURM_JOB_ID"), variables.at("SLURM_STEP_ID")).c_str());
  launch.generation = static_cast<std::uint32_t>(number_or(variables, "SLURM_RESTART_COUNT", 0, 1L << 31, 0));
  return launch;
}

// A step of several tasks, or the shell of a batch job that asked for several.
bool slurm_tasks(const Variables& variables) {
  if (!has(variables, "SLURM_PROCID") && !has(variables, "SLURM_STEP_ID")) return false;
  const bool step = has(variables, "SLURM_STEP_ID") && has(variables, "SLURM_STEP_NUM_TASKS");
  return text_or(variables, step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "1") != "1";
}

using Signs = std::vector<std::string_view>;

struct Row {
  std::string_view launcher;
  Signs any_of;  // variables by which it is known
  bool all = false;
  Launch (*read)(const Variables&) = nullptr;  // null: not supported
  bool (*also)(const Variables&) = nullptr;    // a further condition
};

// The first that fits is taken: ours before others, what is complete before what is not supported.
const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"rondorun", {"RONDO_RENDEZVOUS"}, true, read_rondorun},
      {"torchrun", {"TORCHELASTIC_RUN_ID"}, true, read_torchrun},
      {"set by hand", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}, true, read_plain},
      {"Open MPI", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, true, read_open_mpi},
      {"Open MPI", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
      {"PALS", {"PALS_RANKID", "PALS_NODEID", "PALS_LOCAL_RANKID", "PALS_APID"}},
      {"Flux", {"FLUX_TASK_RANK"}},
      {"LSF jsrun", {"JSM_NAMESPACE_RANK"}},
      // Before Slurm: MPICH's mpiexec in a Slurm job starts its helpers by srun, whose variables ranks inherit.
      {"MPICH", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, true, read_hydra},
      {"Slurm", {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}, true, read_slurm, slurm_tasks},
      {"Slurm", {"SLURM_STEP_ID", "SLURM_PROCID"}, false, nullptr, slurm_tasks},
      {"PMIx", {"PMIX_RANK", "PMIX_NAMESPACE"}},
      {"PMI", {"PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT"}},
      {"OpenPAI",
       {"PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "PAI_TASK_INDEX", "PAI_CURRENT_TASK_ROLE_NAME", "PAI_JOB_NAME"}},
      {"set by hand", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}, false, read_plain},
  };
  return rows;
}

// The variable by which the row is known, or nothing.
std::string_view sign_of(const Row& row, const Variables& variables) {
  const auto present = [&](std::string_view name) { return has(variables, name); };
  const auto first = std::find_if(row.any_of.begin(), row.any_of.end(), present);
  if (first == row.any_of.end() || (row.also != nullptr && !row.also(variables))) return {};
  if (row.all && !std::all_of(row.any_of.begin(), row.any_of.end(), present)) return {};
  return *first;
}

}  // namespace

Variables process_variables() {
  Variables variables;
  for (const std::string& name : env_names_with_prefix("")) {
    if (const auto value = env(name)) variables.emplace(name, *value);
  }
  return variables;
}

std::optional<Launch> read_launch(const Variables& variables) {
  for (const Row& row : table()) {
    const std::string_view sign = sign_of(row, variables);
    if (sign.empty()) continue;
    if (row.read != nullptr) return row.read(variables);
    throw Error(ErrorCode::unsupported,
                fmt::format("this process was started by {} ({}={}), whose variables are not supported yet: let it "
                            "start rondorun on every node, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for "
                            "every process, or unset {} for a world of one",
                            row.launcher, sign, variables.find(sign)->second, sign));
  }
  return std::nullopt;
}

void parse_endpoint(const std::string& text, const std::string& what, std::string& host, std::uint16_t& port) {
  const auto colon = text.rfind(':');
  const bool bracketed = text.starts_with('[');
  const bool usable = colon != std::string::npos && colon > 0 && (!bracketed || text[colon - 1] == ']') &&
                      (bracketed || text.find(':') == colon);
  int value = 0;
  if (usable) {
    const auto [end, status] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), value);
    if (status != std::errc() || end != text.data() + text.size()) value = 0;
  }
  if (value < 1 || value > 65535) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}={} is not host:port (an IPv6 address in brackets) with a "
                                                         "port from 1 to 65535",
                                                         what, text));
  }
  host = bracketed ? text.substr(1, colon - 2) : text.substr(0, colon);
  port = static_cast<std::uint16_t>(value);
}

}  // namespace rondo::runtime
