// SPDX-License-Identifier: Apache-2.0
// rondorun's command line: torchrun's flags, in both spellings, and a few of our own.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "comm/base/pulse.hpp"
#include "rendezvous/secret.hpp"
#include "tools/rondorun/cores.hpp"
#include "tools/rondorun/hosts.hpp"

namespace rondo::launcher {

enum class Color { at_terminals, always, never };
enum class Terminals { where_shown, always, never };

struct Options {
  int local_size = 1;             // ranks on this node
  int gpus_per_rank = 0;          // 0: CUDA_VISIBLE_DEVICES stays as it is
  bool mps = false;               // NVIDIA's MPS runs meanwhile,
  std::string mps_pipes;          // with its pipes in this folder
  std::vector<std::string> gpus;  // of this node, as CUDA_VISIBLE_DEVICES names them
  Cores cores;
  std::vector<Share> shares;  // of them, one for each local rank
  bool sets_threads = false;  // OMP_NUM_THREADS follows from these
  int nodes = 1;
  int least_nodes = 0;  // so many will do, of a world that grows and shrinks; 0: of no other
  int node = -1;        // -1: by order of arrival
  std::string master_address;
  std::uint16_t master_port = 29500;  // where node 0 serves the rendezvous, with several nodes
  std::string job;                    // empty: made up
  bool job_is_given = false;
  std::filesystem::path secret_file;
  bool no_secret = false;
  bool encrypt = false;
  std::filesystem::path new_secret;  // to be written instead of launching anything
  std::string interface;
  std::string port_range;
  std::string role = "default";
  int max_restarts = 0;              // of the whole job, after a failure
  int replacements = 0;              // processes that may be started in the place of lost ranks
  bool watch = false;                // what each rank is in is shown meanwhile
  bool continue_on_failure = false;  // the other ranks are not told to end
  std::string local_rank_flag;       // each rank's last argument is --FLAG=LOCAL_RANK; empty: none
  std::vector<int> shown;            // ranks whose output is seen; empty: all
  std::vector<int> shown_local;      // the same, by local rank
  bool prefix = true;
  Color color = Color::at_terminals;             // of the prefix
  Terminals terminals = Terminals::where_shown;  // for what ranks write, instead of pipes
  std::filesystem::path log_dir;                 // <rank>/stdout.log and stderr.log; empty: none
  unsigned logged = 0;                           // streams that go to these files, and
  unsigned hidden = 0;                           // those that go there alone: 1 stdout, 2 stderr
  std::filesystem::path failure_dir = ".";       // where failures leave folders; empty: nowhere
  std::chrono::milliseconds grace_period{5000};
  std::chrono::milliseconds join_timeout{300'000};
  std::chrono::milliseconds last_call{30'000};  // for more nodes, once the least are there
  std::chrono::milliseconds link_patience = kLinkPatience;
  std::vector<FarHost> hosts;                // where ranks run that this launcher starts by ssh; empty: here
  std::vector<std::string> ssh;              // the command that takes a host and a command for its shell
  std::string far_program;                   // rondorun, there
  std::vector<std::string> far_flags;        // of the command line, for each of them
  std::optional<rendezvous::Secret> secret;  // of a job over ssh, instead of the file
  int starter = -1;  // a descriptor: signals, a byte each, of the launcher that started this one by ssh, until it ends
  std::vector<std::string> command;
};

struct Stop {  // nothing to launch
  int exit_code;
  std::string says{};       // on stdout: what --help, --explain and the like ask for
  std::string complaint{};  // on stderr, one sentence: what is wrong
  bool operator==(const Stop&) const = default;
};
void say(const Stop& stop);

// A parser, which takes longer to make than to use: nothing stays in it from one line to the next.
class CommandLine {
 public:
  CommandLine();
  ~CommandLine();
  // `known` is what is known before, of an order over ssh.
  std::variant<Options, Stop> parse(const std::vector<std::string>& line, Options known = {});

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace rondo::launcher
