// SPDX-License-Identifier: Apache-2.0
// Whether two readings of a command line come to the same.
#pragma once
#include <tuple>
#include <variant>

#include "tools/rondorun/options.hpp"

namespace rondo::fuzz {

// All of them but the secret, which no command line brings. Whoever adds one finds this by the compiler.
inline auto all_of(const launcher::Options& options) {
  const auto& [local_size, gpus_per_rank, mps, mps_pipes, gpus, cores, shares, sets_threads, nodes, least_nodes, node,
               master_address, master_port, job, job_is_given, secret_file, no_secret, encrypt, new_secret, interface,
               port_range, role, max_restarts, replacements, watch, continue_on_failure, local_rank_flag, shown,
               shown_local, prefix, color, terminals, log_dir, logged, hidden, failure_dir, grace_period, join_timeout,
               last_call, link_patience, hosts, ssh, far_program, far_flags, secret, starter, command] = options;
  return std::tie(local_size, gpus_per_rank, mps, mps_pipes, gpus, cores, shares, sets_threads, nodes, least_nodes,
                  node, master_address, master_port, job, job_is_given, secret_file, no_secret, encrypt, new_secret,
                  interface, port_range, role, max_restarts, replacements, watch, continue_on_failure, local_rank_flag,
                  shown, shown_local, prefix, color, terminals, log_dir, logged, hidden, failure_dir, grace_period,
                  join_timeout, last_call, link_patience, hosts, ssh, far_program, far_flags, starter, command);
}

inline bool same(const std::variant<launcher::Options, launcher::Stop>& a,
                 const std::variant<launcher::Options, launcher::Stop>& b) {
  if (a.index() != b.index()) return false;
  if (const auto* stop = std::get_if<launcher::Stop>(&a)) return *stop == std::get<launcher::Stop>(b);
  return all_of(std::get<launcher::Options>(a)) == all_of(std::get<launcher::Options>(b));
}

}  // namespace rondo::fuzz
