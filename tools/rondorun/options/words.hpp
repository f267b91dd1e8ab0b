// SPDX-License-Identifier: Apache-2.0
// rondorun's command line in two steps: options.cpp reads the words, and knows CLI11; from all of them together the
// files here derive Options, each those of its subject. What is wrong ends either step by a Refusal.
#pragma once
#include <initializer_list>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/error.hpp>

#include "tools/rondorun/explain.hpp"
#include "tools/rondorun/options.hpp"

namespace rondo::launcher {

// Values as they are written.
struct Words {
  std::set<std::string_view> given;  // flags, without dashes: by the command line, or by a variable of torchrun's
  std::string nproc = "1", nnodes = "1", max_restarts = "0", replace = "0";
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

struct Refusal : std::runtime_error {  // one sentence
  using std::runtime_error::runtime_error;
};
[[noreturn]] void refuse(const std::string& sentence);

// What `body` returns; the Error that it throws is why the command line is refused.
template <class Body>
auto or_refuse(const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    refuse(error.what());
  }
}

// What the value of a flag means, which is one of a few words.
std::size_t index_of_choice(const std::string& value, const char* flag, const std::vector<std::string_view>& choices);
template <class Meaning>
Meaning choice(const std::string& value, const char* flag,
               std::initializer_list<std::pair<std::string_view, Meaning>> choices) {
  std::vector<std::string_view> words;
  for (const auto& [word, meaning] : choices) words.push_back(word);
  return choices.begin()[index_of_choice(value, flag, words)].second;
}

int number(const std::string& text, const char* flag, int low, int high);  // the value of a flag, within these bounds

// What follows from all of them, in the order in which it is derived.
void set_world(Words& words, Options& options);        // nodes and where they meet, or hosts
void set_local_ranks(Words& words, Options& options);  // part of it: how many here, their GPUs and cores
void check_local_ranks(const Words& words);            // what is wrong with these words on any node
void set_waits(const Words& words, Options& options);  // and restarts, and signals
void set_output(const Words& words, Options& options);
void set_program(const Words& words, Options& options);  // of what `command` holds: program and arguments

}  // namespace rondo::launcher
