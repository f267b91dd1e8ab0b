// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"
#include "runtime/launchers/environment.hpp"
#include "tools/rondorun/gpus.hpp"

namespace rondo::launcher {
namespace {

constexpr int kUsageError = 2;

// Flags of torchrun that mean something else here or nothing at all.
struct Unsupported {
  const char* names;
  const char* sentence;
};
constexpr std::array kUnsupported{
    Unsupported{"--rdzv-conf,--rdzv_conf", "--rdzv-conf is not supported: use --join-timeout SECONDS"},
    Unsupported{"--local-addr,--local_addr", "--local-addr is not supported: use --interface ADDRESS"},
    Unsupported{"--duplicate-stdout-filters,--duplicate_stdout_filters", "--duplicate-stdout-filters is not supported"},
    Unsupported{"--duplicate-stderr-filters,--duplicate_stderr_filters", "--duplicate-stderr-filters is not supported"},
    Unsupported{"--logs-specs,--logs_specs", "--logs-specs is not supported"},
    Unsupported{"--event-log-handler,--event_log_handler", "--event-log-handler is not supported"},
    Unsupported{"--signals-to-handle,--signals_to_handle",
                "--signals-to-handle is not supported: SIGINT, SIGTERM, SIGQUIT and SIGHUP are always passed on"},
    Unsupported{"--virtual-local-rank,--virtual_local_rank", "--virtual-local-rank is not supported"},
};

// Values as they are written; turned into Options once the line as a whole is understood.
struct Words {
  std::string nproc = "1", nnodes = "1", max_restarts = "0";
  std::string nodes_of;  // who says that there are several, where the command line does not
  std::string rdzv_backend, rdzv_endpoint, node_rank, ignored, prefix = "rank", redirects, tee, shown, shown_local,
                                                               bind, numa_binding;
  std::string pty = "auto";
  double grace_period_s = 5, join_timeout_s = 300;
  bool standalone = false, no_python = false, module = false, run_path = false, version = false;
};

[[noreturn]] void refuse(const std::string& sentence) { throw CLI::ValidationError(sentence, kUsageError); }

int number(const std::string& text, const char* flag, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    refuse(fmt::format("{} must be a whole number from {} to {}, not '{}'", flag, low, high, text));
  return value;
}

// Ranks on this node, of which each gets options.gpus_per_rank GPUs if that is not 0.
int local_size(const std::string& text, const Options& options) {
  if (text == "auto" || text == "cpu") return usable_cpus(options.cores);
  if (text == "p") refuse("unknown flag -np, did you mean -n?; see rondorun --help");  // mpirun's, read as -n p
  if (text != "gpu" && text != "cuda") return number(text, "--nproc-per-node", 1, 65536);
  if (options.gpus.empty())
    refuse(fmt::format("--nproc-per-node {}: no GPU is found on this node; give the number of ranks", text));
  return std::max(1, static_cast<int>(options.gpus.size()) / std::max(1, options.gpus_per_rank));
}

void set_gpus(Options& options) {
  options.gpus = visible_gpus();
  const int most = static_cast<int>(options.gpus.size());
  if (options.gpus_per_rank > most)
    refuse(fmt::format("--gpus-per-rank {}: this node has {} GPU{} to give", options.gpus_per_rank,
                       most == 0 ? "no" : std::to_string(most), most == 1 ? "" : "s"));
}

// Of the GPUs that the ranks take by their local ranks, as far as the kernel says.
std::vector<int> gpu_nodes(const Options& options) {
  std::vector<int> nodes;
  for (int rank = 0; rank < options.local_size && !options.gpus.empty(); ++rank) {
    const auto gpu = static_cast<std::size_t>(rank * std::max(1, options.gpus_per_rank)) % options.gpus.size();
    const auto node = node_of_gpu("/", options.gpus[gpu]);
    if (!node) return {};
    nodes.push_back(*node);
  }
  return nodes;
}

Binding binding(const Words& words) {
  if (!words.bind.empty() && !words.numa_binding.empty()) refuse("--bind and --numa-binding exclude each other");
  const auto found = words.numa_binding.empty() ? binding_of(words.bind.empty() ? "none" : words.bind)
                                                : numa_binding_of(words.numa_binding);
  if (found) return *found;
  if (words.numa_binding.empty()) refuse("--bind must be none, core or numa, not '" + words.bind + "'");
  refuse("--numa-binding must be node, socket, exclusive or core-complex, not '" + words.numa_binding + "'");
}

// OpenMP takes every core that it may run on: right for one rank, unless a quota leaves less.
void set_shares(const Words& words, Options& options) {
  const Binding how = binding(words);
  const bool limited = usable_cpus(options.cores) < static_cast<int>(options.cores.cpus.size());
  options.sets_threads = (options.local_size > 1 || limited) && env_names_with_prefix("OMP_NUM_THREADS=").empty();
  try {
    options.shares = share_cores(options.cores, options.local_size, how,
                                 how == Binding::none ? std::vector<int>{} : gpu_nodes(options));
  } catch (const Error& error) {
    refuse(error.what());
  }
}

int node_count(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) return number(text, "--nnodes", 1, 65536);
  if (text.substr(0, colon) == text.substr(colon + 1)) return node_count(text.substr(0, colon));
  refuse(fmt::format("--nnodes {}: worlds that grow and shrink are not supported, give one number", text));
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
        static_cast<std::uint16_t>(number(std::string(text.substr(colon + 1)), "--rdzv-endpoint's port", 1, 65535));
    text = text.substr(0, colon);
  }
  if (bracketed && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (!options.master_address.empty() && options.master_address != text)
    refuse("--rdzv-endpoint and --master-addr name different hosts: give one of them");
  options.master_address = text;
}

void set_nodes(const Words& words, Options& options) {
  options.nodes = node_count(words.nnodes);
  if (words.standalone && options.nodes > 1) refuse("--standalone is for one node: leave it or --nnodes out");
  if (!words.node_rank.empty()) options.node = number(words.node_rank, "--node-rank", 0, options.nodes - 1);
  set_endpoint(words, options);
  options.job_is_given = !options.job.empty();
  if (options.nodes > 1 && options.job.empty()) options.job = "rondorun";
  if (options.nodes == 1) {
    options.node = 0;
    return;
  }
  if (options.master_address.empty())
    refuse(words.nodes_of +
           "several nodes need --master-addr HOST (or --rdzv-endpoint HOST:PORT), the address of node 0");
  if (options.master_port == 0) refuse("--master-port 0: several nodes need a port that all of them know, 1 to 65535");
  if (options.secret_file.empty() && !options.no_secret)
    refuse(
        words.nodes_of +
        "several nodes need --secret-file FILE, the same on every node (make it with: rondorun --new-secret FILE), or "
        "--no-secret on a network you trust");
}

// Where jobs that share hosts are not told another one, they hardly have the same.
std::uint16_t port_of(const std::string& job) {
  constexpr std::uint16_t kFirst = 29500;
  constexpr std::uint32_t kPorts = 2000;
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619U;
  return job.empty() ? kFirst : static_cast<std::uint16_t>(kFirst + hash % kPorts);
}

std::optional<runtime::NodeLaunch> node_launch() {
  try {
    return runtime::read_node_launch(runtime::process_variables());
  } catch (const Error& error) {
    refuse(error.what());
  }
}

// What the command line leaves out, of a scheduler that has started this on every node: never a smaller world.
void take_from_scheduler(const CLI::App& app, Words& words, Options& options) {
  const auto given = [&](const char* flag) { return app.count(flag) > 0; };
  if (words.standalone || (given("--nnodes") && (words.nnodes == "1" || given("--node-rank")))) return;
  const auto launch = node_launch();
  if (!launch || launch->nodes == 1) return;
  if (!given("--nnodes") && launch->nodes == 0)
    refuse(fmt::format("{} does not say how many nodes the job has: give --nnodes ({} started this)", launch->sign,
                       launch->launcher));
  if (given("--nnodes") && launch->nodes != 0 && node_count(words.nnodes) != launch->nodes)
    refuse(fmt::format("--nnodes {}, but {} ({}) has {} nodes", words.nnodes, launch->launcher, launch->sign,
                       launch->nodes));
  if (!given("--nnodes")) {
    words.nnodes = std::to_string(launch->nodes);
    words.nodes_of = fmt::format("{} ({}) started this on {} nodes: ", launch->launcher, launch->sign, launch->nodes);
  }
  if (!given("--node-rank") && launch->node >= 0) words.node_rank = std::to_string(launch->node);
  if (!given("--nproc-per-node") && !launch->local_size.empty()) words.nproc = launch->local_size;
  if (options.job.empty()) options.job = launch->job;
  if (given("--rdzv-endpoint")) return;
  if (!given("--master-addr")) options.master_address = launch->master_address;
  if (!given("--master-port"))
    options.master_port = launch->master_port != 0 ? launch->master_port : port_of(options.job);
}

void check_backend(const std::string& backend) {
  if (backend.empty() || backend == "static" || backend == "c10d") return;  // ours takes their place
  refuse(fmt::format("--rdzv-backend {} is not supported: rondorun brings its own rendezvous, leave it out", backend));
}

std::chrono::milliseconds seconds(double value, const char* flag) {
  if (!(value >= 0 && value <= 1e7)) refuse(fmt::format("{} must be seconds from 0 to 1e7", flag));
  return std::chrono::milliseconds(static_cast<std::int64_t>(value * 1000));
}

void add_torchrun_flags(CLI::App& app, Words& words, Options& options) {
  app.add_option("-n,--nproc-per-node,--nproc_per_node", words.nproc,
                 "ranks on this node: a number, auto, cpu or gpu (1)");
  app.add_option("--nnodes", words.nnodes, "nodes of the job (1)");
  app.add_option("--node-rank,--node_rank", words.node_rank, "which node this is, from 0; left out: by arrival");
  app.add_option("--master-addr,--master_addr", options.master_address, "address of node 0");
  app.add_option("--master-port,--master_port", options.master_port, "where node 0 serves the rendezvous (29500)");
  app.add_option("--rdzv-endpoint,--rdzv_endpoint", words.rdzv_endpoint, "HOST[:PORT]: the two above in one");
  app.add_option("--rdzv-id,--rdzv_id", options.job, "name of the job; the same on every node");
  app.add_option("--rdzv-backend,--rdzv_backend", words.rdzv_backend, "static or c10d; both mean our own");
  app.add_flag("--standalone", words.standalone, "one node (as is the default)");
  app.add_option("--max-restarts,--max_restarts", words.max_restarts,
                 "how often a failed job is started again, all ranks of it (0)");
  app.add_option("--log-dir,--log_dir", options.log_dir,
                 "each rank's output also into DIR/RANK/stdout.log, stderr.log");
  app.add_option("-r,--redirects", words.redirects, "1 stdout, 2 stderr, 3 both: only into the log directory");
  app.add_option("-t,--tee", words.tee, "1, 2, 3: also into the log directory");
  app.add_option("--local-ranks-filter,--local_ranks_filter", words.shown_local,
                 "0,1,…: only these local ranks' output is shown, and the last words of the one that fails first");
  app.add_option("--role", options.role, "given to the ranks as ROLE_NAME");
  app.add_flag("-m,--module", words.module, "the program is a module of Python's: python3 -u -m MODULE");
  app.add_flag("--run-path,--run_path", words.run_path, "the program is a file for python3, whatever its name");
  app.add_flag("--no-python,--no_python", words.no_python, "what ends in .py is run as it is, too");
  app.add_option("--numa-binding,--numa_binding", words.numa_binding,
                 "node, socket, exclusive or core-complex, of each rank's GPU where there is one");
  app.add_option("--monitor-interval,--monitor_interval", words.ignored, "accepted: ends are noticed at once");
  app.add_option("--start-method,--start_method", words.ignored, "accepted: ranks are programs of their own");
}

unsigned streams(const std::string& text, const char* flag) {
  return text.empty() ? 0 : static_cast<unsigned>(number(text, flag, 0, 3));
}

void set_logs(const Words& words, Options& options) {
  options.hidden = streams(words.redirects, "--redirects");
  options.logged = options.hidden | streams(words.tee, "--tee");
  if (options.hidden != 0 && options.log_dir.empty()) refuse("--redirects needs --log-dir DIR");
  if (!options.log_dir.empty() && words.redirects.empty() && words.tee.empty()) options.logged = 3;
  if (options.log_dir.empty()) options.logged = 0;  // --tee alone: everything is shown anyway
  if (options.logged != 0 && !options.prefix) refuse("--log-dir cannot be had with --prefix none");
}

std::vector<int> ranks(const std::string& text, const char* flag, const Options& options) {
  std::vector<int> all;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) all.push_back(number(word, flag, 0, 1 << 20));
  if (!all.empty() && !options.prefix) refuse(fmt::format("{} cannot be had with --prefix none", flag));
  return all;
}

void set_restarts(const Words& words, Options& options) {
  options.max_restarts = number(words.max_restarts, "--max-restarts", 0, 1'000'000);
  if (options.max_restarts > 0 && options.nodes > 1)
    refuse("--max-restarts is for one node: with several, let what starts rondorun on them start all of it again");
}

std::string is_flag_name(const std::string& text) {
  return text.empty() || text.front() == '-' ? "--pass-local-rank takes a name without its dashes, say local-rank" : "";
}

void add_own_flags(CLI::App& app, Words& words, Options& options) {
  app.add_option("--secret-file,--secret_file", options.secret_file, "the job's secret, the same on every node");
  app.add_option("--new-secret,--new_secret", options.new_secret, "writes such a file (mode 0600) and ends");
  app.add_flag("--no-secret,--no_secret", options.no_secret, "several nodes without one: anybody may join");
  app.add_option("--interface", options.interface, "network interface or address for connections between ranks");
  app.add_option("--port-range,--port_range", options.port_range, "FIRST-LAST: ports of connections between ranks");
  app.add_option("--gpus-per-rank,--gpus_per_rank", options.gpus_per_rank,
                 "sets CUDA_VISIBLE_DEVICES: so many GPUs for each rank, shared where there are fewer (left alone)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--bind", words.bind,
                 "each rank to its share of the cores, or to their NUMA node: none, core, numa (none)");
  app.add_option("--grace-period,--grace_period", words.grace_period_s, "seconds until what must end is killed (5)");
  app.add_option("--join-timeout,--join_timeout", words.join_timeout_s, "seconds to wait for the other nodes (300)");
  app.add_option("--ranks-filter,--ranks_filter", words.shown, "the same by rank, over all nodes");
  app.add_option("--pass-local-rank,--pass_local_rank", options.local_rank_flag,
                 "FLAG: each rank's last argument is --FLAG=LOCAL_RANK, as local-rank or local_rank")
      ->check(CLI::Validator(is_flag_name, ""));
  app.add_flag("--version", words.version, "says which one this is");
  app.add_option("--prefix", words.prefix, "rank: [rank] before every line; none: ranks write for themselves");
  app.add_option("--pty", words.pty,
                 "auto: ranks write to terminals of their own where we do; always; never: to pipes");
}

void set_terminals(const Words& words, Options& options) {
  if (words.pty != "auto" && words.pty != "always" && words.pty != "never")
    refuse("--pty must be auto, always or never");
  if (words.pty == "auto") return;
  options.terminals = words.pty == "always" ? Terminals::always : Terminals::never;
  if (words.pty == "always" && !options.prefix) refuse("--pty always cannot be had with --prefix none");
}

// As torchrun runs scripts: unbuffered, so that lines are seen when they are written.
void set_program(const Words& words, Options& options) {
  std::vector<std::string>& command = options.command;
  if (!command.empty() && command.front() == "--") command.erase(command.begin());
  if (command.empty() || command.front().empty()) refuse("no program given: rondorun [flags] program [arguments]");
  if (words.no_python && (words.module || words.run_path)) refuse("--no-python cannot be had with -m or --run-path");
  const bool is_script = command.front().ends_with(".py") && ::access(command.front().c_str(), X_OK) != 0;
  if (words.module)
    command.insert(command.begin(), {"python3", "-u", "-m"});
  else if (words.run_path || (is_script && !words.no_python))
    command.insert(command.begin(), {"python3", "-u"});
}

// Of two words: how many letters to change, to add or to leave out.
std::size_t distance(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t corner = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < other.size(); ++j) {
      const std::size_t changed = corner + (one[i] == other[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({changed, row[j + 1] + 1, row[j] + 1});
    }
  }
  return row.back();
}

[[noreturn]] void refuse_flag(const CLI::App& app, const std::string& given) {
  const std::string flag = given.substr(0, given.find('='));
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, flag.size() / 4);
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::size_t away = distance(flag, "--" + name);
      if (away > least || (away == least && !nearest.empty())) continue;
      least = away;
      nearest = "--" + name;
    }
  }
  refuse(fmt::format("unknown flag {}{}; see rondorun --help", flag,
                     nearest.empty() ? "" : fmt::format(", did you mean {}?", nearest)));
}

Options finish(const CLI::App& app, Words words, Options options) {
  if (!options.new_secret.empty()) return options;
  take_from_scheduler(app, words, options);
  set_gpus(options);
  options.cores = read_cores("/", allowed_cpus());
  options.local_size = local_size(words.nproc, options);
  set_shares(words, options);
  check_backend(words.rdzv_backend);
  set_nodes(words, options);
  set_restarts(words, options);
  options.grace_period = seconds(words.grace_period_s, "--grace-period");
  options.join_timeout = seconds(words.join_timeout_s, "--join-timeout");
  if (options.join_timeout.count() == 0) refuse("--join-timeout must be at least 0.001 seconds");
  if (words.prefix != "rank" && words.prefix != "none") refuse("--prefix must be rank or none");
  options.prefix = words.prefix == "rank";
  set_terminals(words, options);
  set_logs(words, options);
  options.shown = ranks(words.shown, "--ranks-filter", options);
  options.shown_local = ranks(words.shown_local, "--local-ranks-filter", options);
  set_program(words, options);
  return options;
}

}  // namespace

std::variant<Options, Stop> parse_command_line(int argc, const char* const* argv) {
  CLI::App app("Runs a program as the ranks of one job.", "rondorun");
  app.prefix_command();  // the first word that is no flag is the program; what follows is its own
  app.set_help_flag("-h,--help", "this text");
  app.footer("The program follows the flags: rondorun [flags] [--] program [arguments]");
  Words words;
  Options options;
  add_torchrun_flags(app, words, options);
  add_own_flags(app, words, options);
  std::array<bool, kUnsupported.size()> used{};
  for (std::size_t i = 0; i < kUnsupported.size(); ++i) app.add_flag(kUnsupported[i].names, used[i])->group("");
  try {
    app.parse(argc, argv);
    for (std::size_t i = 0; i < kUnsupported.size(); ++i)
      if (used[i]) refuse(kUnsupported[i].sentence);
    options.command = app.remaining();
    if (words.version) {
      fmt::print("rondorun {}\n", RONDO_VERSION);
      return Stop{0};
    }
    if (!options.command.empty() && options.command.front() != "--" && options.command.front().starts_with('-'))
      refuse_flag(app, options.command.front());
    return finish(app, words, std::move(options));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return Stop{0};
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "rondorun: {}\n", error.what());
    return Stop{kUsageError};
  }
}

}  // namespace rondo::launcher
