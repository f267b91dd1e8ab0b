// SPDX-License-Identifier: Apache-2.0
// The ranks of this node: started, listened to, signalled, reaped. Runs on the event loop alone.
#pragma once
#include <csignal>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/process/child.hpp"
#include "runtime/process/event_loop.hpp"
#include "runtime/process/exit_status.hpp"
#include "tools/rondorun/error_file.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/output.hpp"
#include "tools/rondorun/terminal.hpp"

namespace rondo::launcher {

struct RankProgram {
  int rank = 0;
  std::vector<std::string> arguments;  // after those of the command
  std::vector<std::string> environment;
  bool shown = true;        // its output
  bool replaces = false;    // a lost process of this rank
  std::vector<int> cpus{};  // that it is bound to; empty: none
  ErrorFile error_file{};
  Fd record{};  // its end of a socket of Records; none: it leaves none
};

// What the launcher knows of one of its ranks.
struct RankFacts {
  int rank = 0;
  pid_t pid = 0;
  char state = 0;                              // a letter of proc(5); 0: it has ended
  std::optional<process::ExitStatus> ended{};  // how; none: it runs
  process::EventLoop::Clock::time_point ended_at{};
  std::vector<std::string> last_lines{};
  bool replaces = false;  // a lost process
};

inline constexpr int kNobody = -2;  // instead of a rank: nothing has failed, and yet all ranks end

struct Failure {
  std::string sentence;  // "rank 2 (pid 4711) was killed by signal 9 (Killed)"
  int exit_code = 1;
  int rank = -1;              // -1: of another node, or no rank's
  std::vector<int> blamed{};  // other ranks of which its last words say that they are gone
  process::EventLoop::Clock::time_point at = process::EventLoop::Clock::now();

  // The program could not be started: it has done nothing, and would not start the next time.
  bool never_ran() const { return exit_code == 126 || exit_code == 127; }
};

// Who ended with exit code 0 is the culprit when another rank failed for lack of it.
std::string left_while_needed(const std::string& who, const std::string& failure);

// The limit we were started with, which the programs get. The first call raises ours.
rlimit open_files_of_programs();

class Ranks {
 public:
  struct Setup {
    std::vector<std::string> command;
    std::vector<RankProgram> programs;
    bool prefix = true;
    Terminals terminals = Terminals::where_shown;
    std::filesystem::path log_dir{};  // as in Options
    unsigned logged = 0, hidden = 0;
    int keep = -1;           // a descriptor that every program inherits; -1: none
    std::string place{};     // " on host x", where there are several
    sigset_t signal_mask{};  // theirs
    std::function<void(const Failure&)> failed;
    std::function<void(int rank)> ended_well;
    std::function<void()> ended;                                        // once, when all have been reaped
    std::function<void(const std::string& file, int reason)> log_ends;  // it takes no more
  };

  Ranks(process::EventLoop& loop, Setup setup, Sink& out, Sink& err);
  ~Ranks();
  void start();                                    // throws when the system refuses, like
  pid_t replace(RankProgram program);              // of a rank that has ended, and is forgotten for that
  void signal(int signal) const;                   // to each rank and its process group
  void signal_those_who_handle(int signal) const;  // of each rank and its process group: others it might end
  int running() const { return running_; }
  std::vector<int> who_runs() const;
  bool is_running(pid_t pid) const;  // one of the ranks that are not reaped yet
  // "rank 2 (pid 4711)", if it has ended with exit code 0; "" else.
  std::string who_ended_well(int rank) const;
  std::vector<int> ended_well_before(process::EventLoop::Clock::time_point time) const;
  std::vector<int> all_stopped() const;                 // the ranks that run, if all of them are stopped by a signal
  std::string list_running() const;                     // "0-2,5"
  std::vector<std::string> last_lines(int rank) const;  // a few of its stderr, or else of its stdout
  std::vector<RankFacts> facts() const;                 // of all
  void finish_output();
  void follow_size();  // of our terminal, which has changed

 private:
  struct Rank;
  Channel channel_for(const RankProgram& program, unsigned stream, const Sink& sink);
  void start(Rank& rank, int index);
  std::vector<int> kept_by(const RankProgram& program) const;
  Source::Handling handling_for(const RankProgram& program, unsigned stream, const Sink& sink) const;
  void ended(Rank& rank, const process::ExitStatus& status);
  Failure failure_of(const Rank& rank, const process::ExitStatus& status);
  std::vector<int> blamed_by(const Rank& rank) const;

  process::EventLoop& loop_;
  Setup setup_;
  Sink &out_, &err_;
  rlimit open_files_;  // of the programs; ours is higher, as each of them costs us four
  process::StartErrors start_errors_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  int running_ = 0;
  bool last_words_shown_ = false;
  bool has_no_terminals_ = false;  // and it has been said
};

}  // namespace rondo::launcher
