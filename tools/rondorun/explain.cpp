// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"
#include "comm/base/plain_text.hpp"
#include "rendezvous/socket.hpp"
#include "runtime/launchers/environment.hpp"

namespace rondo::launcher {
namespace {

std::string from(const std::string& origin, std::string_view otherwise) {
  return origin.empty() ? std::string(otherwise) : "from " + origin;
}

std::string threads_text(const Options& options) {
  if (const auto given = env("OMP_NUM_THREADS")) return fmt::format("{}, as it is set", *given);
  if (!options.sets_threads) return "not set: one rank may use every core";
  const auto [least, most] = std::minmax_element(options.shares.begin(), options.shares.end(),
                                                 [](const Share& a, const Share& b) { return a.threads < b.threads; });
  return least->threads == most->threads ? fmt::format("{}, the cores of a rank", least->threads)
                                         : fmt::format("{} to {}, each rank's cores", least->threads, most->threads);
}

std::string cores_text(const Explanation& explanation, const Options& options) {
  std::vector<int> cpus;
  for (const Cpu& cpu : options.cores.cpus) cpus.push_back(cpu.number);
  const int usable = usable_cpus(options.cores);
  std::string text =
      fmt::format("{} for {} rank{}: {}{}", usable, options.local_size, options.local_size == 1 ? "" : "s",
                  cpu_list(cpus), usable < static_cast<int>(cpus.size()) ? ", less by a quota of control groups" : "");
  const bool bound = !options.shares.empty() && !options.shares.front().cpus.empty();
  if (!bound) return text + "; no rank is bound to its own";
  text += fmt::format("; bound ({}):", explanation.origin({"bind", "numa-binding"}));
  for (const Share& share : options.shares) text += " " + cpu_list(share.cpus);
  return text;
}

}  // namespace

std::string Explanation::origin(std::initializer_list<std::string_view> flags) const {
  for (const std::string_view flag : flags) {
    const auto found = origins_.find(std::string(flag));
    if (found != origins_.end() && !found->second.empty()) return found->second;
  }
  return "";
}

std::string Explanation::text() const {
  std::string text;
  for (const auto& [what, value] : lines_) text += fmt::format("{:<17}{}\n", what, plain_text(value));
  return text;
}

void explain_ranks(Explanation& explanation, const Options& options) {
  explanation.add("ranks here", fmt::format("{}, {}", options.local_size,
                                            from(explanation.origin({"nproc-per-node"}), "as nothing says otherwise")));
  explanation.add("cores here", cores_text(explanation, options));
  explanation.add("OMP_NUM_THREADS", threads_text(options));
}

void explain_nodes(Explanation& explanation, const Options& options) {
  const std::string least = options.least_nodes > 0 ? fmt::format("{} to ", options.least_nodes) : "";
  explanation.add("nodes", fmt::format("{}{}, {}", least, options.nodes,
                                       from(explanation.origin({"nnodes"}), "as nothing says that there are more")));
  if (options.nodes == 1) {
    explanation.add("world size", fmt::format("{}, the ranks here", options.local_size));
    explanation.add("job", options.job.empty()
                               ? "its name is made of the launcher's pid"
                               : fmt::format("{}, {}", options.job, from(explanation.origin({"rdzv-id"}), "")));
    return;
  }
  explanation.add("node rank", options.node < 0
                                   ? "by arrival, as nothing says it"
                                   : fmt::format("{}, {}", options.node, from(explanation.origin({"node-rank"}), "")));
  explanation.add("world size", fmt::format("{} where every node has {}",
                                            std::int64_t{options.nodes} * options.local_size, options.local_size));
  explanation.add("job",
                  fmt::format("{}, {}", options.job, from(explanation.origin({"rdzv-id"}), "as nothing names it")));
  if (options.master_address.empty()) return;
  explanation.add("node 0", fmt::format("{}, {}", options.master_address,
                                        from(explanation.origin({"rdzv-endpoint", "master-addr"}), "")));
  explanation.add("port", fmt::format("{}, {}", options.master_port,
                                      from(explanation.origin({"master-port"}), "as nothing says it")));
}

void explain_hosts(Explanation& explanation, const Options& options) {
  std::string hosts;
  for (const FarHost& host : options.hosts)
    hosts += fmt::format("{}{} with {}", hosts.empty() ? "" : ", ", host.login, host.ranks);
  explanation.add("started by",
                  fmt::format("not asked, as the hosts are given ({})", explanation.origin({"hosts", "hostfile"})));
  explanation.add("hosts", hosts);
  explanation.add("on each", fmt::format("{} HOST {}", fmt::join(options.ssh, " "), options.far_program));
  explanation.add("job", options.job);
  if (options.nodes > 1)
    explanation.add("node 0",
                    fmt::format("{}, port {}, {}", options.master_address, options.master_port,
                                from(explanation.origin({"rdzv-endpoint", "master-addr"}), "the first host")));
  explanation.add("secret",
                  "goes over the connections, " + from(explanation.origin({"secret-file"}), "made for this run"));
}

void explain_secret(Explanation& explanation, const Options& options) {
  const std::string origin = explanation.origin({"secret-file", "no-secret"});
  explanation.add("secret", !options.secret_file.empty()
                                ? fmt::format("in {}, {}", options.secret_file.string(), from(origin, ""))
                            : options.nodes > 1 ? "none: whoever reaches the port may join (--no-secret)"
                                                : "made for this run, inherited by the ranks");
}

void explain_program(Explanation& explanation) {
  std::string what;
  try {
    const auto launch = runtime::read_launch(runtime::process_variables());
    if (!launch) {
      what = "a world of one";
    } else {
      const bool served = !launch->server_host.empty();
      what = fmt::format("rank {} of {} ({}), meets at {}, job {}", launch->rank, launch->world_size, launch->launcher,
                         rendezvous::endpoint_text(served ? launch->server_host : launch->master_address,
                                                   served ? launch->server_port : launch->master_port),
                         launch->job);
    }
  } catch (const Error& error) {
    what = fmt::format("an error: {}", error.what());
  }
  explanation.add("without rondorun", what);
}

}  // namespace rondo::launcher
