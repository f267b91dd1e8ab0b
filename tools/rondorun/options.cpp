// SPDX-License-Identifier: Apache-2.0
// What the command line says: the one unit with CLI11. What follows from it is derived in options/.
#include "tools/rondorun/options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

#include "comm/base/env.hpp"
#include "comm/base/plain_text.hpp"
#include "tools/rondorun/flags.hpp"
#include "tools/rondorun/options/words.hpp"

namespace rondo::launcher {
namespace {

constexpr int kUsageError = 2;

// The flags of the table, each to where its value goes.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {
    options_[&flag("help")] = app_.set_help_flag(spellings(flag("help")), help("help"));
  }
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
      options_[&row] = option->group("")->expected(0, 1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
  const CLI::Option& of(const Flag& row) const { return *options_.at(&row); }

 private:
  static std::string help(const char* name) { return std::string(flag(name).help); }
  CLI::Option* add(const char* name, CLI::Option* option) {
    options_[&flag(name)] = option;
    if (!flag(name).value.empty()) option->type_name(std::string(flag(name).value));
    return option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  CLI::App& app_;
  std::map<const Flag*, CLI::Option*> options_;  // CLI11 compares every name to find one
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
  add.option_switch("mps", options.mps);
  add.option("bind", words.bind);
  add.option("failure-dir", words.failure_dir);
  add.option("grace-period", words.grace_period_s);
  add.option_switch("continue-on-failure", options.continue_on_failure);
  add.option("replace", words.replace);
  add.option_switch("watch", options.watch);
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

// What says the value of a flag: itself, or a variable of torchrun's.
std::string origin_of(const CLI::Option& option, const Flag& row) {
  if (option.count() == 0) return "";
  const std::string variable = variable_of(row);
  const auto value = variable.empty() ? std::nullopt : env(variable);
  const bool is_node_flag = row.name == "nnodes" || row.name == "node-rank";  // these variables are a scheduler's
  if (value && !is_node_flag && option.count() == 1) return fmt::format("{}={}", variable, *value);
  return fmt::format("--{}{}{}", row.name, row.value.empty() ? "" : " ",
                     row.value.empty() ? "" : option.results().back());
}

// Of two words: how many letters to change, to add or to leave out; where that is more than `most`, any such number.
std::size_t distance(std::string_view one, std::string_view other, std::size_t most) {
  std::vector<std::size_t> row(other.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t corner = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < other.size(); ++j) {
      const std::size_t changed = corner + (one[i] == other[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({changed, row[j + 1] + 1, row[j] + 1});
    }
    if (*std::min_element(row.begin(), row.end()) > most) break;  // and it will not be less
  }
  return row.back();
}

[[noreturn]] void refuse_flag(const CLI::App& app, const std::string& given) {
  const std::string flag = given.substr(0, given.find('='));
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, flag.size() / 4);
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::string whole = "--" + name;
      if (whole.size() > flag.size() + least || flag.size() > whole.size() + least) continue;  // it is further away
      const std::size_t away = distance(flag, whole, least);
      if (away > least || (away == least && !nearest.empty())) continue;
      least = away;
      nearest = whole;
    }
  }
  refuse(fmt::format("unknown flag {}{}; see rondorun --help", flag,
                     nearest.empty() ? "" : fmt::format(", did you mean {}?", nearest)));
}

// The line as the far side is to read it, of the table. What concerns the hosts it is told anew.
std::vector<std::string> flags_for_hosts(const Flags& known, const Options& options) {
  std::vector<std::string> line;
  const bool at_terminal = ::isatty(STDOUT_FILENO) == 1;
  if (at_terminal && options.prefix) line.emplace_back("--pty=always");
  for (const Flag& row : flags()) {
    const CLI::Option& option = known.of(row);
    if (option.count() == 0 || row.with_hosts == WithHosts::ours) continue;
    if (!row.value.empty())
      line.push_back(fmt::format("--{}={}", row.name, option.results().back()));
    else if (option.as<bool>())
      line.push_back(fmt::format("--{}", row.name));
  }
  const bool colored = options.color == Color::always || (options.color == Color::at_terminals && at_terminal);
  line.emplace_back(colored ? "--color=always" : "--color=never");
  return line;
}

// Nothing: something is to be launched.
std::optional<std::string> what_is_asked(const Words& words) {
  using Page = std::string (*)();
  Page completion = nullptr, page = nullptr;
  if (!words.completion.empty())
    completion = choice<Page>(words.completion, "--print-completion", {{"bash", bash_completion}});
  if (!words.page.empty())
    page = choice<Page>(words.page, "--print-page", {{"man", man_page}, {"torchrun", torchrun_page}});
  if (words.version) return fmt::format("rondorun {}\n", RONDO_VERSION);
  if (completion != nullptr) return completion();
  if (page != nullptr) return page();
  return std::nullopt;
}

// False: the help is asked for.
bool parse(CLI::App& app, const std::vector<std::string>& words_given) {
  std::vector<std::string> line = flags_in_variables();
  line.insert(line.end(), words_given.begin(), words_given.end());
  std::reverse(line.begin(), line.end());  // as CLI11 wants it
  try {
    app.parse(std::move(line));
    return true;
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ParseError& error) {
    refuse(error.what());
  }
}

void refuse_those_of_torchrun(const Flags& known) {
  for (const Flag& row : flags())
    if (row.honoured == Honoured::refused && known.of(row).count() > 0)
      refuse(fmt::format("--{} is not supported: {}", row.name, row.why));
}

void note_origins(const Flags& known, Words& words) {
  for (const Flag& row : flags()) {
    if (row.honoured == Honoured::refused) continue;
    const std::string origin = origin_of(known.of(row), row);
    if (origin.empty()) continue;
    words.given.insert(row.name);
    words.explanation.set_origin(row.name, origin);
  }
}

std::string explanation_of(Words& words) {
  explain_program(words.explanation);
  return words.explanation.text();
}

}  // namespace

// CLI11's values are members of what it is to fill.
struct CommandLine::Parser {
  Parser() {
    app.prefix_command();  // the first word that is no flag is the program; what follows is its own
    app.footer("The program follows the flags: rondorun [flags] [--] program [arguments]");
    add_flags(known, words, options);
  }
  std::optional<std::string> read(const std::vector<std::string>& line);  // what is asked for instead of a launch

  Words words;
  Options options;
  CLI::App app{"Runs a program as the ranks of one job.", "rondorun"};
  Flags known{app};
};

std::optional<std::string> CommandLine::Parser::read(const std::vector<std::string>& line) {
  if (!launcher::parse(app, line)) return app.help();
  refuse_those_of_torchrun(known);
  options.command = app.remaining();
  if (auto asked = what_is_asked(words)) return asked;
  if (!options.command.empty() && options.command.front() != "--" && options.command.front().starts_with('-'))
    refuse_flag(app, options.command.front());
  note_origins(known, words);
  return std::nullopt;
}

CommandLine::CommandLine() : parser_(std::make_unique<Parser>()) {}
CommandLine::~CommandLine() = default;

std::variant<Options, Stop> CommandLine::parse(const std::vector<std::string>& line, Options known) {
  Words& words = parser_->words = {};
  Options& options = parser_->options = std::move(known);
  try {
    if (auto asked = parser_->read(line)) return Stop{.exit_code = 0, .says = *std::move(asked)};
    if (options.new_secret.empty()) {
      set_world(words, options);
      set_waits(words, options);
      set_output(words, options);
      set_program(words, options);
      if (!options.hosts.empty()) options.far_flags = flags_for_hosts(parser_->known, options);
    }
    if (!words.explain) return options;
    return Stop{.exit_code = 0, .says = explanation_of(words)};
  } catch (const Refusal& refusal) {
    return Stop{.exit_code = kUsageError,
                .says = words.explain ? explanation_of(words) : "",  // what is known until then
                .complaint = refusal.what()};
  }
}

void say(const Stop& stop) {
  fmt::print("{}", stop.says);
  std::fflush(stdout);
  if (!stop.complaint.empty()) complain("rondorun", stop.complaint);
}

}  // namespace rondo::launcher
