// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string_view>

#include "tools/rondorun/gpus.hpp"

namespace rondo::launcher {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Variables torchrun_variables(const Options& options, const Placement& at, int local_rank) {
  const auto rank = std::to_string(at.first_rank + local_rank);
  const auto world_size = std::to_string(at.world_size);
  return {{"RANK", rank},
          {"WORLD_SIZE", world_size},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(at.local_size)},
          {"GROUP_RANK", std::to_string(at.node)},
          {"GROUP_WORLD_SIZE", std::to_string(at.nodes)},
          {"ROLE_NAME", options.role},
          {"ROLE_RANK", std::to_string(at.first_role_rank + local_rank)},
          {"ROLE_WORLD_SIZE", std::to_string(at.role_world_size)},
          {"MASTER_ADDR", at.master_address},
          {"MASTER_PORT", std::to_string(at.master_port)},
          {"TORCHELASTIC_RUN_ID", at.job},
          {"TORCHELASTIC_RESTART_COUNT", std::to_string(at.restarts)},
          {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts)},
          {"TORCHELASTIC_ERROR_FILE", at.error_file}};
}

// An empty value only hides what the launcher itself inherited under that name from a job around it.
Variables own_variables(const Options& options, const Placement& at) {
  Variables result{
      {"RONDO_RENDEZVOUS", at.rendezvous},
      {"RONDO_JOB", at.job},
      {"RONDO_GENERATION", std::to_string(at.generation)},
      {"RONDO_SECRET_FD", at.secret_fd >= 0 ? std::to_string(at.secret_fd) : ""},
      {"RONDO_JOINS_AS", at.joins_as},
      {"RONDO_RECORD_FD", at.record_fd >= 0 ? std::to_string(at.record_fd) : ""},
      {"RONDO_SECRET_FILE", options.secret_file.empty() ? "" : std::filesystem::absolute(options.secret_file)}};
  result["RONDO_LINK_PATIENCE_MS"] = std::to_string(options.link_patience.count());
  const bool has_secret = at.nodes == 1 || options.secret || !options.secret_file.empty();
  if (options.no_secret && !has_secret) result["RONDO_INSECURE"] = "1";
  if (options.encrypt) result["RONDO_ENCRYPT"] = "1";
  if (!options.interface.empty()) result["RONDO_INTERFACE"] = options.interface;
  if (!options.port_range.empty()) result["RONDO_PORT_RANGE"] = options.port_range;
  return result;
}

}  // namespace

std::vector<std::string> rank_environment(const Options& options, const Placement& placement, int local_rank) {
  Variables variables = torchrun_variables(options, placement, local_rank);
  variables.merge(own_variables(options, placement));
  if (options.gpus_per_rank > 0)
    variables["CUDA_VISIBLE_DEVICES"] = gpus_of_rank(options.gpus, local_rank, options.gpus_per_rank);
  if (!options.mps_pipes.empty()) variables["CUDA_MPS_PIPE_DIRECTORY"] = options.mps_pipes;
  const auto threads = std::to_string(options.shares[static_cast<std::size_t>(local_rank)].threads);
  variables["RONDO_CORES"] = threads;
  if (options.sets_threads) variables["OMP_NUM_THREADS"] = threads;
  std::vector<std::string> result;
  // A Python program's lines are passed on when it writes them, however it is started.
  bool has_unbuffered = false;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    has_unbuffered = has_unbuffered || text.starts_with("PYTHONUNBUFFERED=");
    if (!variables.contains(text.substr(0, text.find('=')))) result.emplace_back(text);
  }
  if (!has_unbuffered) result.emplace_back("PYTHONUNBUFFERED=1");
  for (const auto& [name, value] : variables)
    if (!value.empty()) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

}  // namespace rondo::launcher
