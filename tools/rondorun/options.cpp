// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"
#include "comm/base/machine.hpp"
#include "comm/setup/encryption_choice.hpp"
#include "runtime/launchers/environment.hpp"
#include "tools/rondorun/explain.hpp"
#include "tools/rondorun/flags.hpp"
#include "tools/rondorun/gpus.hpp"

namespace rondo::launcher {
namespace {

constexpr int kUsageError = 2;

// Values as they are written; turned into Options once the line as a whole is understood.
struct Words {
  std::string nproc = "1", nnodes = "1", max_restarts = "0";
  std::string nodes_of;  // who says that there are several, where the command line does not
  std::string rdzv_backend, rdzv_endpoint, node_rank, ignored, prefix = "rank", redirects, tee, shown, shown_local,
                                                               bind, numa_binding;
  std::string pty = "auto", color = "auto", failure_dir;
  std::string rdzv_conf, signals, completion, page;
  std::string hosts, hostfile, ssh = "ssh -x -o BatchMode=yes -o ControlMaster=no";
  Explanation explanation;
  std::optional<double> grace_period_s, shutdown_timeout_s, link_patience_s;
  double join_timeout_s = 300;
  bool standalone = false, no_python = false, module = false, run_path = false, version = false, explain = false;
};

[[noreturn]] void refuse(const std::string& sentence) { throw CLI::ValidationError(sentence, kUsageError); }

// One of a few words.
void check_choice(const std::string& value, const char* flag, std::initializer_list<std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  std::string all;
  for (auto choice = choices.begin(); choice != choices.end(); ++choice) {
    const bool is_first = choice == choices.begin(), is_last = choice + 1 == choices.end();
    all += is_first ? "" : is_last ? " or " : ", ";
    all += *choice;
  }
  refuse(fmt::format("{} must be {}, not '{}'", flag, all, value));
}

int number(const std::string& text, const char* flag, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    refuse(fmt::format("{} must be a whole number from {} to {}, not '{}'", flag, low, high, text));
  return value;
}

// Ranks on this node, of which each gets options.gpus_per_rank GPUs if that is not 0.
int local_size(const std::string& text, const Options& options) {
  if (text == "cpu" || (text == "auto" && options.gpus.empty())) return usable_cpus(options.cores);
  if (text == "p") refuse("unknown flag -np, did you mean -n?; see rondorun --help");  // mpirun's, read as -n p
  if (text != "auto" && text != "gpu" && text != "cuda") return number(text, "--nproc-per-node", 1, 65536);
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
  if (!words.numa_binding.empty()) {
    check_choice(words.numa_binding, "--numa-binding", {"node", "socket", "exclusive", "core-complex"});
    return *numa_binding_of(words.numa_binding);
  }
  const std::string how = words.bind.empty() ? "none" : words.bind;
  check_choice(how, "--bind", {"none", "core", "numa"});
  return *binding_of(how);
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
        static_cast<std::uint16_t>(number(std::string(text.substr(colon + 1)), "--rdzv-endpoint's port", 0, 65535));
    text = text.substr(0, colon);
  }
  if (bracketed && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (!options.master_address.empty() && options.master_address != text)
    refuse("--rdzv-endpoint and --master-addr name different hosts: give one of them");
  options.master_address = text;
}

void set_nodes(Words& words, Options& options) {
  options.nodes = node_count(words.nnodes);
  if (words.standalone && options.nodes > 1) refuse("--standalone is for one node: leave it or --nnodes out");
  if (!words.node_rank.empty()) options.node = number(words.node_rank, "--node-rank", 0, options.nodes - 1);
  set_endpoint(words, options);
  options.job_is_given = !options.job.empty();
  if (options.nodes > 1 && options.job.empty()) options.job = "rondorun";
  if (options.nodes == 1) {
    options.node = 0;
    explain_nodes(words.explanation, options);
    explain_secret(words.explanation, options);
    return;
  }
  std::string& master = options.master_address;  // [::1], as torchrun wants it, or without brackets
  if (master.size() > 2 && master.front() == '[' && master.back() == ']') master = master.substr(1, master.size() - 2);
  explain_nodes(words.explanation, options);
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

std::optional<runtime::NodeLaunch> node_launch() {
  try {
    return runtime::read_node_launch(runtime::process_variables());
  } catch (const Error& error) {
    refuse(error.what());
  }
}

// What says the value of a flag: itself, or a variable of torchrun's.
std::string origin_of(const CLI::App& app, const Flag& row) {
  const CLI::Option* option = app.get_option(fmt::format("--{}", row.name));
  if (option->count() == 0) return "";
  const std::string variable = variable_of(row);
  const auto value = variable.empty() ? std::nullopt : env(variable);
  const bool is_node_flag = row.name == "nnodes" || row.name == "node-rank";  // these variables are a scheduler's
  if (value && !is_node_flag && option->count() == 1) return fmt::format("{}={}", variable, *value);
  return fmt::format("--{}{}{}", row.name, row.value.empty() ? "" : " ",
                     row.value.empty() ? "" : option->results().back());
}

void explain_launcher(Words& words, const std::optional<runtime::NodeLaunch>& launch) {
  words.explanation.add("started by", launch ? fmt::format("{}, as {} says", launch->launcher, launch->sign)
                                             : fmt::format("none of {}, as no variable says so",
                                                           fmt::join(runtime::known_launchers(), ", ")));
}

// What the command line leaves out, of a scheduler that has started this on every node: never a smaller world.
void take_from_scheduler(const CLI::App& app, Words& words, Options& options) {
  const auto given = [&](const char* flag) { return app.count(flag) > 0; };
  if (words.standalone || (given("--nnodes") && (words.nnodes == "1" || given("--node-rank")))) {
    words.explanation.add("started by", fmt::format("not asked, as the nodes are given ({})",
                                                    words.explanation.origin({"standalone", "nnodes"})));
    return;
  }
  const auto launch = node_launch();
  explain_launcher(words, launch);
  const auto take = [&](const char* flag, auto& to, const auto& said) {
    to = said.value;
    words.explanation.set_origin(flag, said.by);
  };
  if (!launch) return;
  const int nodes = launch->nodes.value;
  if (nodes == 1)
    return words.explanation.set_origin("nnodes", launch->nodes.by.empty() ? launch->sign : launch->nodes.by);
  if (!given("--nnodes") && nodes == 0)
    refuse(fmt::format("{} does not say how many nodes the job has: give --nnodes ({} started this)", launch->sign,
                       launch->launcher));
  if (given("--nnodes") && nodes != 0 && node_count(words.nnodes) != nodes)
    refuse(fmt::format("--nnodes {}, but {} ({}) has {} nodes", words.nnodes, launch->launcher, launch->sign, nodes));
  if (!given("--nnodes")) {
    words.nnodes = std::to_string(nodes);
    words.explanation.set_origin("nnodes", launch->nodes.by);
    words.nodes_of = fmt::format("{} ({}) started this on {} nodes: ", launch->launcher, launch->sign, nodes);
  }
  if (!given("--node-rank") && launch->node.value >= 0) {
    words.node_rank = std::to_string(launch->node.value);
    words.explanation.set_origin("node-rank", launch->node.by);
  }
  if (!given("--nproc-per-node") && !launch->local_size.value.empty())
    take("nproc-per-node", words.nproc, launch->local_size);
  if (options.job.empty()) take("rdzv-id", options.job, launch->job);
  if (given("--rdzv-endpoint")) return;
  if (!given("--master-addr")) take("master-addr", options.master_address, launch->master_address);
  if (given("--master-port")) return;
  take("master-port", options.master_port, launch->master_port);
  if (options.master_port != 0) return;
  options.master_port = port_of(options.job);
  if (!options.job.empty()) words.explanation.set_origin("master-port", "the job's name");
}

void check_backend(const std::string& backend) {
  if (backend.empty() || backend == "static" || backend == "c10d") return;  // ours takes their place
  refuse(fmt::format("--rdzv-backend {} is not supported: rondorun brings its own rendezvous, leave it out", backend));
}

std::chrono::milliseconds seconds(double value, const char* flag) {
  if (!(value >= 0 && value <= 1e7)) refuse(fmt::format("{} must be seconds from 0 to 1e7, not {}", flag, value));
  return std::chrono::milliseconds(static_cast<std::int64_t>(value * 1000));
}

// The flags of the table, each to where its value goes.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}
  template <class Value>
  CLI::Option* option(const char* name, Value& value) {
    return add(name, app_.add_option(spellings(flag(name)), value, help(name)));
  }
  void option_switch(const char* name, bool& value) {
    add(name, app_.add_flag(spellings(flag(name)), value, help(name)));
  }
  // Of torchrun's, and in no help.
  void refused() {
    for (const Flag& row : flags()) {
      if (row.honoured != Honoured::refused) continue;
      auto* option = app_.add_option_function<std::string>(spellings(row), [](const std::string&) {});
      refused_.emplace_back(&row,
                            option->group("")->expected(0, 1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast));
    }
  }
  void refuse_those() const {
    for (const auto& [row, option] : refused_)
      if (option->count() > 0) refuse(fmt::format("--{} is not supported: {}", row->name, row->why));
  }

 private:
  static std::string help(const char* name) { return std::string(flag(name).help); }
  CLI::Option* add(const char* name, CLI::Option* option) {
    if (!flag(name).value.empty()) option->type_name(std::string(flag(name).value));
    return option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  CLI::App& app_;
  std::vector<std::pair<const Flag*, CLI::Option*>> refused_;
};

std::string is_flag_name(const std::string& text) {
  return text.empty() || text.front() == '-' ? "--pass-local-rank takes a name without its dashes, say local-rank" : "";
}

void add_flags(Flags& add, Words& words, Options& options) {
  add.option("nproc-per-node", words.nproc);
  add.option("nnodes", words.nnodes);
  add.option("node-rank", words.node_rank);
  add.option("master-addr", options.master_address);
  add.option("master-port", options.master_port);
  add.option("rdzv-endpoint", words.rdzv_endpoint);
  add.option("rdzv-id", options.job);
  add.option("rdzv-backend", words.rdzv_backend);
  add.option("rdzv-conf", words.rdzv_conf);
  add.option_switch("standalone", words.standalone);
  add.option("max-restarts", words.max_restarts);
  add.option("log-dir", options.log_dir);
  add.option("redirects", words.redirects);
  add.option("tee", words.tee);
  add.option("local-ranks-filter", words.shown_local);
  add.option("role", options.role);
  add.option_switch("module", words.module);
  add.option_switch("run-path", words.run_path);
  add.option_switch("no-python", words.no_python);
  add.option("numa-binding", words.numa_binding);
  add.option("shutdown-timeout", words.shutdown_timeout_s);
  add.option("signals-to-handle", words.signals);
  add.option("monitor-interval", words.ignored);
  add.option("start-method", words.ignored);
  add.option("print-completion", words.completion);
  add.refused();
  add.option("secret-file", options.secret_file);
  add.option("new-secret", options.new_secret);
  add.option_switch("no-secret", options.no_secret);
  add.option_switch("encrypt", options.encrypt);
  add.option("hosts", words.hosts);
  add.option("hostfile", words.hostfile);
  add.option("ssh", words.ssh);
  add.option("interface", options.interface);
  add.option("port-range", options.port_range);
  add.option("gpus-per-rank", options.gpus_per_rank)->check(CLI::Range(1, 1024));
  add.option("bind", words.bind);
  add.option("failure-dir", words.failure_dir);
  add.option("grace-period", words.grace_period_s);
  add.option_switch("continue-on-failure", options.continue_on_failure);
  add.option("join-timeout", words.join_timeout_s);
  add.option("link-patience", words.link_patience_s);
  add.option("ranks-filter", words.shown);
  add.option("pass-local-rank", options.local_rank_flag)->check(CLI::Validator(is_flag_name, ""));
  add.option("prefix", words.prefix);
  add.option("pty", words.pty);
  add.option("color", words.color);
  add.option_switch("explain", words.explain);
  add.option("print-page", words.page);
  add.option_switch("version", words.version);
}

// torchrun's variables stand for flags that are not given. What a scheduler says of nodes is read elsewhere.
std::vector<std::string> flags_in_variables() {
  std::vector<std::string> words;
  for (const Flag& row : flags()) {
    const std::string variable = variable_of(row);
    if (variable.empty() || row.name == "nnodes" || row.name == "node-rank") continue;
    const auto value = env(variable);
    if (!value) continue;
    if (!row.value.empty())
      words.push_back(fmt::format("--{}={}", row.name, *value));
    else if (number(*value, variable.c_str(), 0, 1) == 1)
      words.push_back(fmt::format("--{}", row.name));
  }
  return words;
}

std::chrono::milliseconds link_patience_of(std::optional<double> given_s) {
  if (!given_s) {
    try {
      return given_link_patience();
    } catch (const Error& error) {  // about the variable
      refuse(error.what());
    }
  }
  const std::chrono::duration<double> given(*given_s);
  if (given >= kLeastLinkPatience && given <= kMostLinkPatience)
    return std::chrono::round<std::chrono::milliseconds>(given);
  const auto seconds_of = [](std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; };
  refuse(fmt::format("--link-patience must be seconds from {} to {}, not {}", seconds_of(kLeastLinkPatience),
                     seconds_of(kMostLinkPatience), *given_s));
}

void set_waits(const Words& words, Options& options) {
  if (words.shutdown_timeout_s && words.grace_period_s)
    refuse("--grace-period and --shutdown-timeout are one: give one of them");
  options.grace_period = words.shutdown_timeout_s ? seconds(*words.shutdown_timeout_s, "--shutdown-timeout")
                                                  : seconds(words.grace_period_s.value_or(5), "--grace-period");
  options.join_timeout = seconds(words.join_timeout_s, "--join-timeout");
  options.link_patience = link_patience_of(words.link_patience_s);
  constexpr std::string_view kKey = "join_timeout=";
  if (words.rdzv_conf.starts_with(kKey) && words.rdzv_conf.find(',') == std::string::npos) {
    options.join_timeout =
        std::chrono::seconds(number(words.rdzv_conf.substr(kKey.size()), "--rdzv-conf's join_timeout", 1, 10'000'000));
  } else if (!words.rdzv_conf.empty()) {
    refuse(fmt::format("--rdzv-conf {} is not supported: it takes join_timeout=SECONDS alone", words.rdzv_conf));
  }
  if (options.join_timeout.count() == 0) refuse("--join-timeout must be at least 0.001 seconds");
}

void check_signals(const std::string& names) {
  constexpr std::array kPassedOn{"SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2"};
  std::istringstream words(names);
  for (std::string word; std::getline(words, word, ',');) {
    if (std::find(kPassedOn.begin(), kPassedOn.end(), word) == kPassedOn.end())
      refuse(fmt::format("--signals-to-handle {} is not supported: {}", word, flag("signals-to-handle").why));
  }
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

void set_failure_dir(const Words& words, Options& options) {
  const std::string where = words.failure_dir.empty() ? env("RONDO_FAILURE_DIR").value_or(".") : words.failure_dir;
  options.failure_dir = where == "none" ? "" : where;
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

void set_color(const Words& words, Options& options) {
  check_choice(words.color, "--color", {"auto", "always", "never"});
  if (words.color == "always") options.color = Color::always;
  if (words.color == "never" || (words.color == "auto" && env("NO_COLOR"))) options.color = Color::never;
}

void set_terminals(const Words& words, Options& options) {
  check_choice(words.pty, "--pty", {"auto", "always", "never"});
  if (words.pty == "auto") return;
  options.terminals = words.pty == "always" ? Terminals::always : Terminals::never;
  if (words.pty == "always" && !options.prefix) refuse("--pty always cannot be had with --prefix none");
}

void set_command(Options& options, bool may_be_missing) {
  std::vector<std::string>& command = options.command;
  if (!command.empty() && command.front() == "--") command.erase(command.begin());
  if (command.empty() && may_be_missing) return;
  if (command.empty() || command.front().empty()) refuse("no program given: rondorun [flags] program [arguments]");
}

// As torchrun runs scripts: unbuffered, so that lines are seen when they are written.
void set_program(const Words& words, Options& options) {
  std::vector<std::string>& command = options.command;
  set_command(options, words.explain);
  if (command.empty()) return;
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

void set_this_node(const CLI::App& app, Words& words, Options& options) {
  take_from_scheduler(app, words, options);
  set_gpus(options);
  options.cores = read_cores("/", allowed_cpus());
  options.local_size = local_size(words.nproc, options);
  set_shares(words, options);
  explain_ranks(words.explanation, options);
  set_nodes(words, options);
}

// The line as the far side is to read it, of the table. What concerns the hosts it is told anew.
std::vector<std::string> flags_for_hosts(const CLI::App& app, const Options& options) {
  constexpr std::array<std::string_view, 14> kOurs{
      "hosts",       "hostfile",      "ssh",     "nnodes",      "node-rank", "nproc-per-node", "master-addr",
      "master-port", "rdzv-endpoint", "rdzv-id", "secret-file", "no-secret", "explain",        "help"};
  std::vector<std::string> line;
  const bool at_terminal = ::isatty(STDOUT_FILENO) == 1;
  if (at_terminal && options.prefix) line.emplace_back("--pty=always");
  for (const Flag& row : flags()) {
    const CLI::Option* option = app.get_option(fmt::format("--{}", row.name));
    if (option->count() == 0 || std::find(kOurs.begin(), kOurs.end(), row.name) != kOurs.end()) continue;
    if (!row.value.empty())
      line.push_back(fmt::format("--{}={}", row.name, option->results().back()));
    else if (option->as<bool>())
      line.push_back(fmt::format("--{}", row.name));
  }
  const bool colored = options.color == Color::always || (options.color == Color::at_terminals && at_terminal);
  line.emplace_back(colored ? "--color=always" : "--color=never");
  return line;
}

void set_host_list(const Words& words, Options& options) {
  if (!words.hosts.empty() && !words.hostfile.empty()) refuse("--hosts and --hostfile are one: give one of them");
  try {
    options.hosts =
        words.hosts.empty() ? hosts_of_file(words.hostfile, words.nproc) : hosts_of_list(words.hosts, words.nproc);
  } catch (const Error& error) {
    refuse(error.what());
  }
}

// All of them must be able to reach the first one by its name.
void set_first_host(const CLI::App& app, const Words& words, Options& options) {
  set_endpoint(words, options);
  if (options.job.empty()) options.job = fmt::format("{}-{}-{}", host_name(), ::getpid(), std::time(nullptr));
  if (app.count("--master-port") == 0 && words.rdzv_endpoint.empty()) options.master_port = port_of(options.job);
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
void set_hosts(const CLI::App& app, Words& words, Options& options) {
  for (const char* flag : {"--nnodes", "--node-rank", "--standalone"})
    if (app.count(flag) > 0) refuse(fmt::format("{} cannot be had with --hosts, which says it: leave it out", flag));
  set_host_list(words, options);
  options.nodes = static_cast<int>(options.hosts.size());
  set_first_host(app, words, options);
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

void finish(const CLI::App& app, Words& words, Options& options) {
  if (!options.new_secret.empty()) return;
  for (const Flag& row : flags())
    if (row.honoured != Honoured::refused) words.explanation.set_origin(row.name, origin_of(app, row));
  options.encrypt = options.encrypt || encryption_is_wanted();  // which ranks inherit
  check_backend(words.rdzv_backend);
  if (words.hosts.empty() && words.hostfile.empty())
    set_this_node(app, words, options);
  else
    set_hosts(app, words, options);
  set_restarts(words, options);
  set_waits(words, options);
  check_signals(words.signals);
  check_choice(words.prefix, "--prefix", {"rank", "none"});
  options.prefix = words.prefix == "rank";
  set_color(words, options);
  set_terminals(words, options);
  set_logs(words, options);
  set_failure_dir(words, options);
  options.shown = ranks(words.shown, "--ranks-filter", options);
  options.shown_local = ranks(words.shown_local, "--local-ranks-filter", options);
  if (options.hosts.empty()) return set_program(words, options);
  set_command(options, words.explain);
  options.far_flags = flags_for_hosts(app, options);
}

bool print_what_is_asked(const Words& words) {
  if (!words.completion.empty()) check_choice(words.completion, "--print-completion", {"bash"});
  if (!words.page.empty()) check_choice(words.page, "--print-page", {"man", "torchrun"});
  if (words.version)
    fmt::print("rondorun {}\n", RONDO_VERSION);
  else if (!words.completion.empty())
    fmt::print("{}", bash_completion());
  else if (!words.page.empty())
    fmt::print("{}", words.page == "man" ? man_page() : torchrun_page());
  else
    return false;
  return true;
}

}  // namespace

std::variant<Options, Stop> parse_command_line(const std::vector<std::string>& words_given, Options options) {
  CLI::App app("Runs a program as the ranks of one job.", "rondorun");
  app.prefix_command();  // the first word that is no flag is the program; what follows is its own
  app.set_help_flag(spellings(flag("help")), std::string(flag("help").help));
  app.footer("The program follows the flags: rondorun [flags] [--] program [arguments]");
  Words words;
  Flags known(app);
  add_flags(known, words, options);
  try {
    std::vector<std::string> line = flags_in_variables();
    line.insert(line.end(), words_given.begin(), words_given.end());
    std::reverse(line.begin(), line.end());  // as CLI11 wants it
    app.parse(std::move(line));
    known.refuse_those();
    options.command = app.remaining();
    if (print_what_is_asked(words)) return Stop{0};
    if (!options.command.empty() && options.command.front() != "--" && options.command.front().starts_with('-'))
      refuse_flag(app, options.command.front());
    finish(app, words, options);
    if (!words.explain) return options;
    explain_program(words.explanation);
    fmt::print("{}", words.explanation.text());
    return Stop{0};
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return Stop{0};
  } catch (const CLI::ParseError& error) {
    if (words.explain) {  // what is known until then
      explain_program(words.explanation);
      fmt::print("{}", words.explanation.text());
      std::fflush(stdout);
    }
    fmt::print(stderr, "rondorun: {}\n", error.what());
    return Stop{kUsageError};
  }
}

}  // namespace rondo::launcher
