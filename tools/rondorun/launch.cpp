// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/launch.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/base/fd.hpp"
#include "comm/base/machine.hpp"
#include "rendezvous/secret.hpp"
#include "runtime/process/descent.hpp"
#include "runtime/process/event_loop.hpp"
#include "runtime/process/exit_status.hpp"
#include "tools/rondo/snapshot.hpp"
#include "tools/rondorun/alone.hpp"
#include "tools/rondorun/cores.hpp"
#include "tools/rondorun/failure_folder.hpp"
#include "tools/rondorun/gpus.hpp"
#include "tools/rondorun/job_document.hpp"
#include "tools/rondorun/judgement.hpp"
#include "tools/rondorun/nodes.hpp"
#include "tools/rondorun/programs.hpp"
#include "tools/rondorun/ranks.hpp"
#include "tools/rondorun/records.hpp"
#include "tools/rondorun/visitors.hpp"
#include "tools/rondorun/voice.hpp"
#include "tools/rondorun/watch.hpp"

namespace rondo::launcher {
namespace {

using std::chrono::milliseconds;
using Clock = process::EventLoop::Clock;

constexpr milliseconds kPatience{300};  // of people who pressed Ctrl-C
constexpr std::chrono::seconds kKillLimit{2};
constexpr milliseconds kTidyingLimit{3000};  // for what ranks leave behind, before it is killed

std::optional<rendezvous::Secret> given_secret(const Options& options) {
  if (options.secret || options.secret_file.empty()) return options.secret;
  return rendezvous::Secret::from_file(options.secret_file);
}

std::string ranks_of(const Placement& at) {
  const int last = at.first_rank + at.local_size - 1;
  return at.local_size == 1 ? std::to_string(last) : fmt::format("{}-{}", at.first_rank, last);
}

class Launch {
 public:
  Launch(const Options& options, process::Supervision& supervision)
      : options_(options), supervision_(supervision), voice_(loop_, options.color) {}
  int run();

 private:
  void start();
  void start_alone();
  void start_ranks(const Placement& at);
  void share_out_cores();
  void control(int from);
  void on_signal(int signal);
  void say_what_is_waited_for();
  void leave_while_running();
  void look(std::function<void(const records::Snapshot&)> done);
  void on_ranks_ended();
  void on_decision(Decision decision);
  void nodes_start_again();
  void start_again();
  void replace(int rank);
  void say_restart(const Placement& at);

  const Options& options_;
  process::Supervision& supervision_;
  process::EventLoop loop_;
  Fd child_ended_;
  Voice voice_;
  BoundCores bound_;
  Records records_{loop_};
  std::optional<Placement> at_;  // once it is known
  Job job_;
  Judgement judgement_{loop_, options_, job_, voice_};
  Visitors visitors_{loop_, [this](Visitors::Answer answer) {
                       look([answer](const records::Snapshot& snapshot) { answer(records::encode(snapshot)); });
                     }};
  Watch watch_{loop_, voice_,
               Watch::Job{.runs = [this] { return judgement_.phase() == Phase::running && job_.end_signal == 0; },
                          .look = [this](Watch::Done done) { look(std::move(done)); },
                          .draws = options_.prefix}};
  int interrupts_ = 0;
  bool waits_after_signal_ = false;
  int restarts_ = 0, replaced_ = 0;  // with one node
  int restarts_said_ = 0;
  bool cores_are_shared_ = false;
};

int Launch::run() {
  loop_.watch(supervision_.control.get(), EPOLLIN, [this] { control(supervision_.control.get()); });
  if (options_.starter >= 0) loop_.watch(options_.starter, EPOLLIN, [this] { control(options_.starter); });
  child_ended_ = process::watch_adopted(loop_, [this](pid_t pid) { return job_.ranks && job_.ranks->is_running(pid); });
  visitors_.open(supervision_.launcher);
  start();
  if (options_.watch) watch_.start();
  loop_.run();
  return judgement_.exit_code().value_or(voice_.left_out() ? 1 : 0);
}

void Launch::start() {
  job_.replace = [this](int rank) { replace(rank); };
  open_files_of_programs();  // before anything raises ours
  if (options_.nodes == 1) return start_alone();
  job_.nodes = std::make_unique<Nodes>(
      loop_, options_, given_secret(options_),
      Nodes::Handlers{.waiting = [this](const std::string& sentence) { voice_.say(sentence); },
                      .joined = [this](const Placement& at) { start_ranks(at); },
                      .verdict = [this](const Failure& verdict) { judgement_.on_verdict(verdict); },
                      .decision = [this](Decision decision) { on_decision(decision); },
                      .lost = [this](const std::string& why) { judgement_.on_lost(why); },
                      .closed = [this](const Closed& closed) { judgement_.on_closed(closed); },
                      .left = [this] { judgement_.enter(Phase::finishing); }});
}

void Launch::start_alone() {
  job_.alone = std::make_unique<Alone>(options_, given_secret(options_), restarts_);
  start_ranks(job_.alone->placement());
}

void Launch::start_ranks(const Placement& at) {
  if (job_.end_signal != 0) return;  // told to end while the other nodes were being met
  say_restart(at);
  const std::string sharing = sharing_sentence(at.local_size, options_.gpus.size(), options_.gpus_per_rank);
  if (!sharing.empty()) voice_.say(sharing);
  share_out_cores();
  at_ = at;
  job_.folder = std::make_unique<FailureFolder>(options_, at, records_);
  Ranks::Setup setup{.command = options_.command,
                     .programs = rank_programs(options_, at, records_),
                     .prefix = options_.prefix,
                     .terminals = options_.terminals,
                     .log_dir = options_.log_dir,
                     .logged = options_.logged,
                     .hidden = options_.hidden,
                     .keep = at.secret_fd,
                     .place = at.nodes > 1 || options_.starter >= 0 ? " on host " + host_name() : "",
                     .signal_mask = supervision_.original_mask,
                     .failed = [this](const Failure& failure) { judgement_.on_failure(failure); },
                     .ended_well =
                         [this](int rank) {
                           if (job_.nodes) job_.nodes->ended_well(rank, job_.ranks->who_ended_well(rank));
                           judgement_.look_for_left_behind();
                         },
                     .ended = [this] { on_ranks_ended(); },
                     .log_ends = [this](const std::string& file, int reason) { voice_.say_log_ends(file, reason); }};
  job_.ranks = std::make_unique<Ranks>(loop_, std::move(setup), voice_.out(), voice_.err());
  judgement_.enter(Phase::running);
  job_.ranks->start();
}

void Launch::share_out_cores() {
  if (std::exchange(cores_are_shared_, true)) return;  // all has been said, and taken
  const std::string threads = options_.sets_threads ? threads_sentence(options_.cores, options_.shares) : "";
  if (!threads.empty()) voice_.say(threads);
  const auto others = bound_.take(options_.shares);
  if (!others.empty())
    voice_.say(
        fmt::format("ranks of another rondorun are bound to cores {} of this host, too: both run slower; without "
                    "--bind the kernel shares cores out",
                    cpu_list(others)));
}

// Signals that this launcher got, or the one that started it by ssh; at its end, or that of the connection, all ends.
void Launch::control(int from) {
  unsigned char signal = 0;
  if (::read(from, &signal, 1) == 1) return on_signal(signal);
  judgement_.enter(Phase::abandoned);
}

void Launch::on_signal(int signal) {
  if (signal == SIGWINCH) {
    if (job_.ranks) job_.ranks->follow_size();
    return;
  }
  const bool ends = signal != SIGUSR1 && signal != SIGUSR2 && signal != SIGTSTP && signal != SIGCONT;
  const bool is_first = ends && job_.end_signal == 0;
  if (is_first) job_.end_signal = signal;
  if (!job_.ranks) {  // still waiting for the other nodes
    if (signal == SIGUSR2) voice_.say("there is nothing to write about the ranks, as they have not started");
    if (ends) judgement_.on_signal_before_start(signal);
    return;
  }
  if (signal == SIGINT && ++interrupts_ > 1) {
    job_.ranks->signal(SIGKILL);
    if (judgement_.phase() >= Phase::ended) loop_.stop();  // only other nodes or a reader of our output are left
    return;
  }
  if (signal == SIGUSR2) return leave_while_running();
  if (is_first && job_.nodes) job_.nodes->depart("stopped by " + process::signal_name(signal));
  job_.ranks->signal(signal == SIGTSTP ? SIGSTOP : signal);
  if (!ends) return;
  loop_.at(Clock::now() + options_.grace_period, [this] { job_.ranks->signal(SIGKILL); });
  if (std::exchange(waits_after_signal_, true)) return;
  loop_.at(Clock::now() + kPatience, [this] { say_what_is_waited_for(); });
}

void Launch::look(std::function<void(const records::Snapshot&)> done) {
  records_.ask([this, done = std::move(done)](const Records::Answers& answers) {
    Placement unknown;
    unknown.nodes = options_.nodes;
    unknown.job = options_.job;
    const Account account{.happened = std::chrono::system_clock::now(),
                          .now = job_.ranks ? job_.ranks->facts() : std::vector<RankFacts>{}};
    done({.job = job_document(options_, at_.value_or(unknown), account), .records = answers});
  });
}

// Ranks without a handler go on: they are asked over their sockets.
void Launch::leave_while_running() {
  records_.ask([this](const Records::Answers& answers) {
    if (job_.ranks) voice_.say(job_.folder->leave_while_running(*job_.ranks, answers));
  });
  job_.ranks->signal_those_who_handle(SIGUSR2);
}

void Launch::say_what_is_waited_for() {
  const std::string again = job_.end_signal == SIGINT ? ", at once after another SIGINT" : "";
  if (job_.ranks->running() > 0)
    return voice_.say(fmt::format("waiting for the end of rank{} {} after {}; killed {} s after it{}",
                                  job_.ranks->running() == 1 ? "" : "s", job_.ranks->list_running(),
                                  process::signal_name(job_.end_signal),
                                  static_cast<double>(options_.grace_period.count()) / 1000, again));
  if (judgement_.phase() == Phase::ended)
    voice_.say("waiting for the other nodes, as all ranks of this one have ended");
}

void Launch::on_ranks_ended() {
  voice_.err().show_below({});
  const auto patience = interrupts_ > 1 ? milliseconds(0) : std::min(options_.grace_period, kTidyingLimit);
  const auto patience_ends = Clock::now() + patience;
  if (!process::end_descent(patience_ends, patience_ends + kKillLimit))
    voice_.say("some processes that the ranks left behind could not be killed");
  job_.ranks->finish_output();
  judgement_.settle();
  if (job_.nodes) {
    judgement_.on_ranks_ended();
    return nodes_start_again();
  }
  if (restarts_ == options_.max_restarts || !judgement_.may_start_again()) return judgement_.on_ranks_ended();
  loop_.post([this] {  // the ranks are calling
    if (job_.end_signal == 0) return start_again();
    on_ranks_ended();
  });
}

void Launch::on_decision(Decision decision) {
  judgement_.on_decision(decision);
  nodes_start_again();
}

void Launch::nodes_start_again() {
  if (!judgement_.nodes_start_again()) return;
  loop_.post([this] {  // the ranks are calling
    if (judgement_.nodes_start_again()) return start_again();
    if (job_.end_signal != 0) judgement_.on_signal_before_start(job_.end_signal);
  });
}

void Launch::start_again() {
  judgement_.start_again();
  job_.ranks.reset();
  job_.folder.reset();
  records_.clear();
  if (job_.nodes) return job_.nodes->start_again();
  job_.alone.reset();  // a rendezvous of its own, where nobody is left from the last time
  ++restarts_;
  start_alone();
}

// It has the cores, the GPUs and the variables of the lost one.
void Launch::replace(int rank) {
  if (replaced_ == options_.replacements || job_.end_signal != 0) return;
  Placement at = job_.alone->placement();
  at.joins_as = fmt::format("{}.{}", rank, ++replaced_);
  job_.alone->replaces(rank, at.joins_as);
  try {
    const pid_t pid = job_.ranks->replace(rank_program(options_, at, rank, records_));
    voice_.say(
        fmt::format("rank {} is replaced by another process (pid {}), which waits to join the others: "
                    "replacement {} of {}",
                    rank, pid, replaced_, options_.replacements));
  } catch (const Error& error) {
    voice_.say(fmt::format("rank {} cannot be replaced: {}", rank, error.what()));
  }
}

void Launch::say_restart(const Placement& at) {
  if (at.restarts > restarts_said_)
    voice_.say(fmt::format("starting again: restart {} of {}", at.restarts, options_.max_restarts));
  restarts_said_ = at.restarts;
  if (is_elastic(options_))
    voice_.say(fmt::format("node {} of {}, with rank{} {} of {}", at.node, at.nodes, at.local_size == 1 ? "" : "s",
                           ranks_of(at), at.world_size));
}

}  // namespace

int launch(const Options& options, process::Supervision& supervision) {
  const auto run = std::make_shared<Launch>(options, supervision);
  supervision.until_exit = run;
  return run->run();
}

}  // namespace rondo::launcher
