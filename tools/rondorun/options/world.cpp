// SPDX-License-Identifier: Apache-2.0
// Which nodes a job has, and where they meet: as the command line says, or a scheduler that started rondorun on each of
// them; or the hosts where rondorun is to start them by ssh.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <sstream>

#include "comm/base/machine.hpp"
#include "comm/setup/encryption_choice.hpp"
#include "runtime/launchers/environment.hpp"
#include "tools/rondorun/options/words.hpp"

namespace rondo::launcher {
namespace {

constexpr int kMostNodes = 65536;

struct NodeCount {
  int least, most;
};
NodeCount node_count(const std::string& text) {
  const auto colon = text.find(':');
  const int least = number(text.substr(0, colon), "--nnodes", 1, kMostNodes);
  if (colon == std::string::npos) return {least, least};
  return {least, number(text.substr(colon + 1), "--nnodes MIN:MAX's MAX", least, kMostNodes)};
}

void set_endpoint(const Words& words, Options& options) {
  if (words.rdzv_endpoint.empty()) return;
  std::string_view text = words.rdzv_endpoint;
  const auto colon = text.rfind(':');
  const bool bracketed = text.starts_with('[');
  const bool has_port =
      colon != std::string_view::npos && (bracketed ? text[colon - 1] == ']' : text.find(':') == colon);
  if (has_port) {
    options.master_port =
        static_cast<std::uint16_t>(number(std::string(text.substr(colon + 1)), "--rdzv-endpoint's port", 0, 65535));
    text = text.substr(0, colon);
  }
  if (bracketed && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (!options.master_address.empty() && options.master_address != text)
    refuse("--rdzv-endpoint and --master-addr name different hosts: give one of them");
  options.master_address = text;
}

void check_meeting(const Words& words, const Options& options) {
  if (options.master_address.empty())
    refuse(words.nodes_of +
           "several nodes need --master-addr HOST (or --rdzv-endpoint HOST:PORT), the address of node 0");
  if (options.master_port == 0) refuse("--master-port 0: several nodes need a port that all of them know, 1 to 65535");
  if (options.encrypt && options.no_secret && options.secret_file.empty())
    refuse("--encrypt cannot be had with --no-secret: its keys are made from the job's secret");
  if (options.secret_file.empty() && !options.no_secret && !options.secret)
    refuse(
        words.nodes_of +
        "several nodes need --secret-file FILE, the same on every node (make it with: rondorun --new-secret FILE), or "
        "--no-secret on a network you trust");
}

void set_nodes(Words& words, Options& options) {
  const auto [least, most] = node_count(words.nnodes);
  options.nodes = most;
  options.least_nodes = least < most ? least : 0;
  const bool several = options.nodes > 1;
  if (words.standalone && several) refuse("--standalone is for one node: leave it or --nnodes out");
  const int last_node = (options.least_nodes > 0 ? kMostNodes : options.nodes) - 1;  // of MIN to MAX any may come
  if (!words.node_rank.empty()) options.node = number(words.node_rank, "--node-rank", 0, last_node);
  set_endpoint(words, options);
  options.job_is_given = !options.job.empty();
  if (several) {
    if (options.job.empty()) options.job = "rondorun";
    std::string& master = options.master_address;  // [::1], as torchrun wants it, or without brackets
    if (master.size() > 2 && master.front() == '[' && master.back() == ']')
      master = master.substr(1, master.size() - 2);
  } else {
    options.node = 0;
  }
  explain_nodes(words.explanation, options);
  if (several) check_meeting(words, options);
  explain_secret(words.explanation, options);
}

// Where jobs that share hosts are not told another one, they hardly have the same.
std::uint16_t port_of(const std::string& job) {
  constexpr std::uint16_t kFirst = 29500;
  constexpr std::uint32_t kPorts = 2000;
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619U;
  return job.empty() ? kFirst : static_cast<std::uint16_t>(kFirst + hash % kPorts);
}

// Never a smaller world than the scheduler's.
void take_node_count(Words& words, const runtime::NodeLaunch& launch) {
  const int nodes = launch.nodes.value;
  if (words.given.contains("nnodes")) {
    const auto [least, most] = node_count(words.nnodes);
    if (nodes != 0 && (nodes < least || nodes > most))
      refuse(fmt::format("--nnodes {}, but {} ({}) has {} nodes", words.nnodes, launch.launcher, launch.sign, nodes));
    return;
  }
  if (nodes == 0)
    refuse(fmt::format("{} does not say how many nodes the job has: give --nnodes ({} started this)", launch.sign,
                       launch.launcher));
  words.nnodes = (launch.least_nodes > 0 ? fmt::format("{}:", launch.least_nodes) : "") + std::to_string(nodes);
  words.explanation.set_origin("nnodes", launch.nodes.by);
  words.nodes_of = fmt::format("{} ({}) started this on {} nodes: ", launch.launcher, launch.sign, nodes);
}

void take_from(const runtime::NodeLaunch& launch, Words& words, Options& options) {
  if (launch.nodes.value == 1)
    return words.explanation.set_origin("nnodes", launch.nodes.by.empty() ? launch.sign : launch.nodes.by);
  take_node_count(words, launch);
  const auto given = [&](const char* flag) { return words.given.contains(flag); };
  const auto take = [&](const char* flag, auto& to, const auto& value, const std::string& by) {
    to = value;
    words.explanation.set_origin(flag, by);
  };
  if (!given("node-rank") && launch.node.value >= 0)
    take("node-rank", words.node_rank, std::to_string(launch.node.value), launch.node.by);
  if (!given("nproc-per-node") && !launch.local_size.value.empty())
    take("nproc-per-node", words.nproc, launch.local_size.value, launch.local_size.by);
  if (options.job.empty()) take("rdzv-id", options.job, launch.job.value, launch.job.by);
  if (given("rdzv-endpoint")) return;
  if (!given("master-addr"))
    take("master-addr", options.master_address, launch.master_address.value, launch.master_address.by);
  if (given("master-port")) return;
  if (launch.master_port.value != 0)
    take("master-port", options.master_port, launch.master_port.value, launch.master_port.by);
  else
    take("master-port", options.master_port, port_of(options.job), options.job.empty() ? "" : "the job's name");
}

// What the command line leaves out, of a scheduler that has started this on every node.
void take_from_scheduler(Words& words, Options& options) {
  if (words.standalone ||
      (words.given.contains("nnodes") && (words.nnodes == "1" || words.given.contains("node-rank")))) {
    words.explanation.add("started by", fmt::format("not asked, as the nodes are given ({})",
                                                    words.explanation.origin({"standalone", "nnodes"})));
    return;
  }
  const auto launch = or_refuse([] { return runtime::read_node_launch(runtime::process_variables()); });
  words.explanation.add("started by", launch ? fmt::format("{}, as {} says", launch->launcher, launch->sign)
                                             : fmt::format("none of {}, as no variable says so",
                                                           fmt::join(runtime::known_launchers(), ", ")));
  if (launch) take_from(*launch, words, options);
}

// All of them must be able to reach the first one by its name.
void set_first_host(const Words& words, Options& options) {
  set_endpoint(words, options);
  if (options.job.empty()) options.job = fmt::format("{}-{}-{}", host_name(), ::getpid(), std::time(nullptr));
  if (!words.given.contains("master-port") && words.rdzv_endpoint.empty()) options.master_port = port_of(options.job);
  if (!options.master_address.empty()) return;
  options.master_address = options.hosts.front().name();
  const auto far = std::find_if(options.hosts.begin(), options.hosts.end(),
                                [](const FarHost& host) { return !is_loopback(host.name()); });
  if (is_loopback(options.master_address) && far != options.hosts.end())
    refuse(
        fmt::format("--hosts begins with {}, which is no name of it for {}: give it the name that others have for "
                    "it, or --master-addr",
                    options.master_address, far->name()));
}

// Ranks that run elsewhere, where cores, GPUs and the program are looked for.
void set_hosts(Words& words, Options& options) {
  for (const char* flag : {"nnodes", "node-rank", "standalone"})
    if (words.given.contains(flag))
      refuse(fmt::format("--{} cannot be had with --hosts, which says it: leave it out", flag));
  if (!words.hosts.empty() && !words.hostfile.empty()) refuse("--hosts and --hostfile are one: give one of them");
  check_local_ranks(words);
  options.hosts = or_refuse([&] {
    return words.hosts.empty() ? hosts_of_file(words.hostfile, words.nproc) : hosts_of_list(words.hosts, words.nproc);
  });
  options.nodes = static_cast<int>(options.hosts.size());
  set_first_host(words, options);
  std::istringstream ssh(words.ssh);
  for (std::string word; ssh >> word;) options.ssh.push_back(word);
  if (options.ssh.empty()) refuse("--ssh needs a command, as ssh");
  if (options.encrypt && std::filesystem::path(options.ssh.front()).filename() != "ssh")
    refuse(
        fmt::format("--encrypt cannot be had with --ssh {}, through which the secret and all output go: only ssh is "
                    "known to encrypt them",
                    words.ssh));
  options.far_program = std::filesystem::read_symlink("/proc/self/exe");
  options.local_size = 0;
  explain_hosts(words.explanation, options);
}

void check_backend(const std::string& backend) {
  if (backend.empty() || backend == "static" || backend == "c10d") return;  // ours takes their place
  refuse(fmt::format("--rdzv-backend {} is not supported: rondorun brings its own rendezvous, leave it out", backend));
}

}  // namespace

void set_world(Words& words, Options& options) {
  options.encrypt = options.encrypt || encryption_is_wanted();  // which ranks inherit
  check_backend(words.rdzv_backend);
  if (!words.hosts.empty() || !words.hostfile.empty()) return set_hosts(words, options);
  take_from_scheduler(words, options);
  set_local_ranks(words, options);
  set_nodes(words, options);
}

}  // namespace rondo::launcher
