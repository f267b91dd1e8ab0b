// SPDX-License-Identifier: Apache-2.0
// How values are read, and those that are about no node: waits and output.
#include "tools/rondorun/options/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <sstream>

#include "comm/base/env.hpp"
#include "tools/rondorun/flags.hpp"

namespace rondo::launcher {
namespace {

std::vector<std::string> list(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) all.push_back(word);
  return all;
}

std::chrono::milliseconds seconds(double value, const char* flag) {
  if (!(value >= 0 && value <= 1e7)) refuse(fmt::format("{} must be seconds from 0 to 1e7, not {}", flag, value));
  return std::chrono::milliseconds(static_cast<std::int64_t>(value * 1000));
}

std::chrono::milliseconds link_patience_of(std::optional<double> given_s) {
  if (!given_s) return or_refuse(given_link_patience);
  const std::chrono::duration<double> given(*given_s);
  if (given >= kLeastLinkPatience && given <= kMostLinkPatience)
    return std::chrono::round<std::chrono::milliseconds>(given);
  const auto seconds_of = [](std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; };
  refuse(fmt::format("--link-patience must be seconds from {} to {}, not {}", seconds_of(kLeastLinkPatience),
                     seconds_of(kMostLinkPatience), *given_s));
}

void set_rendezvous(const std::string& text, Options& options) {
  for (const std::string& word : list(text)) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const bool is_join = key == "join_timeout";
    if (equals == std::string::npos || (!is_join && key != "last_call_timeout"))
      refuse(fmt::format("--rdzv-conf {} is not supported: it takes join_timeout=SECONDS and last_call_timeout=SECONDS",
                         word));
    (is_join ? options.join_timeout : options.last_call) = std::chrono::seconds(
        number(word.substr(equals + 1), fmt::format("--rdzv-conf's {}", key).c_str(), is_join ? 1 : 0, 10'000'000));
  }
}

void check_signals(const std::string& names) {
  constexpr std::array kPassedOn{"SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2"};
  for (const std::string& name : list(names))
    if (std::find(kPassedOn.begin(), kPassedOn.end(), name) == kPassedOn.end())
      refuse(fmt::format("--signals-to-handle {} is not supported: {}", name, flag("signals-to-handle").why));
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
  for (const std::string& word : list(text)) all.push_back(number(word, flag, 0, 1 << 20));
  if (!all.empty() && !options.prefix) refuse(fmt::format("{} cannot be had with --prefix none", flag));
  return all;
}

}  // namespace

void refuse(const std::string& sentence) { throw Refusal(sentence); }

std::size_t index_of_choice(const std::string& value, const char* flag, const std::vector<std::string_view>& choices) {
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  std::string all;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    all += i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ";
    all += choices[i];
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

void set_waits(const Words& words, Options& options) {
  options.max_restarts = number(words.max_restarts, "--max-restarts", 0, 1'000'000);
  options.replacements = number(words.replace, "--replace", 0, 1'000'000);
  if (options.replacements > 0 && options.nodes > 1)
    refuse(
        fmt::format("--replace {} is for one node: on several, --max-restarts and --nnodes MIN:MAX start all ranks "
                    "again",
                    options.replacements));
  if (words.shutdown_timeout_s && words.grace_period_s)
    refuse("--grace-period and --shutdown-timeout are one: give one of them");
  options.grace_period = words.shutdown_timeout_s ? seconds(*words.shutdown_timeout_s, "--shutdown-timeout")
                                                  : seconds(words.grace_period_s.value_or(5), "--grace-period");
  options.join_timeout = seconds(words.join_timeout_s, "--join-timeout");
  options.link_patience = link_patience_of(words.link_patience_s);
  set_rendezvous(words.rdzv_conf, options);
  if (options.join_timeout.count() == 0) refuse("--join-timeout must be at least 0.001 seconds");
  check_signals(words.signals);
}

void set_output(const Words& words, Options& options) {
  options.prefix = choice<bool>(words.prefix, "--prefix", {{"rank", true}, {"none", false}});
  options.color = choice<Color>(words.color, "--color",
                                {{"auto", env("NO_COLOR") ? Color::never : Color::at_terminals},
                                 {"always", Color::always},
                                 {"never", Color::never}});
  options.terminals =
      choice<Terminals>(words.pty, "--pty",
                        {{"auto", Terminals::where_shown}, {"always", Terminals::always}, {"never", Terminals::never}});
  if (options.terminals == Terminals::always && !options.prefix)
    refuse("--pty always cannot be had with --prefix none");
  set_logs(words, options);
  const std::string where = words.failure_dir.empty() ? env("RONDO_FAILURE_DIR").value_or(".") : words.failure_dir;
  options.failure_dir = where == "none" ? "" : where;
  options.shown = ranks(words.shown, "--ranks-filter", options);
  options.shown_local = ranks(words.shown_local, "--local-ranks-filter", options);
}

}  // namespace rondo::launcher
