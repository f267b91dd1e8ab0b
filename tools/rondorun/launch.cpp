// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/launch.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "comm/base/fd.hpp"
#include "comm/base/limits.hpp"
#include "comm/base/machine.hpp"
#include "rendezvous/client.hpp"
#include "rendezvous/server.hpp"
#include "rendezvous/survivals.hpp"
#include "runtime/process/descent.hpp"
#include "runtime/process/event_loop.hpp"
#include "tools/rondorun/cores.hpp"
#include "tools/rondorun/environment.hpp"
#include "tools/rondorun/failure_folder.hpp"
#include "tools/rondorun/free_port.hpp"
#include "tools/rondorun/gpus.hpp"
#include "tools/rondorun/nodes.hpp"
#include "tools/rondorun/output.hpp"
#include "tools/rondorun/ranks.hpp"
#include "tools/rondorun/records.hpp"

namespace rondo::launcher {
namespace {

using std::chrono::milliseconds;
using Clock = process::EventLoop::Clock;

// Ranks notice the loss of one by themselves and say what it cost them, or ask who survived: they get this long before
// they are told to end.
constexpr milliseconds kSettle{250};
constexpr milliseconds kHearsay{150};   // a failure that may be the echo of another rank's counts after this long
constexpr milliseconds kPatience{300};  // of people who pressed Ctrl-C
constexpr std::chrono::seconds kKillLimit{2};
constexpr milliseconds kTidyingLimit{3000};        // for what ranks leave behind, before it is killed
constexpr std::chrono::seconds kVerdictLimit{5};   // for the rendezvous to answer, when all else is over
constexpr std::chrono::seconds kDecisionLimit{1};  // for it to say whether survivors go on
constexpr const char* kOwnHost = "127.0.0.1";

// Of this node's ranks. It goes forward alone, except that a restart begins again, and survivors may go on.
enum class Phase {
  meeting,    // there are no ranks yet
  running,    //
  stopping,   // something failed: they may settle, then they are told to end, then they are killed
  ended,      // the other nodes' may still run
  finishing,  // what the ranks wrote is still on its way
  abandoned,  // our caller is gone and kills what is left
};
enum class Verdict { awaited, known, final, lost };  // of all nodes; lost: the rendezvous is

bool same_file(int left, int right) {
  struct stat a {
  }, b{};
  return ::fstat(left, &a) == 0 && ::fstat(right, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::vector<std::string> rank_arguments(const Options& options, int local_rank) {
  if (options.local_rank_flag.empty()) return {};
  return {fmt::format("--{}={}", options.local_rank_flag, local_rank)};
}

bool is_shown(const Options& options, int rank, int local_rank) {
  const auto among = [](const std::vector<int>& all, int one) {
    return all.empty() || std::find(all.begin(), all.end(), one) != all.end();
  };
  return among(options.shown, rank) && among(options.shown_local, local_rank);
}

class Launch {
 public:
  Launch(const Options& options, process::Supervision& supervision);
  int run();

 private:
  void start();
  void start_alone();
  void start_ranks(const Placement& placement);
  void share_out_cores();
  void control(int from);
  void on_signal(int signal);
  void on_failure(const Failure& failure);
  void settle_failure();
  void name_those_who_left(Failure& failure) const;
  void look_at_ranks();
  void leave_folder();
  void say_failure();
  void say_failure_again();
  void say_what_is_waited_for();
  std::size_t lines_said() const { return out_.lines() + (own_err_ ? own_err_->lines() : 0); }
  void on_verdict(const Failure& verdict);
  void on_decision(bool goes_on);
  void judge();
  bool is_missed(int rank);
  void go_on();
  void on_node_done();
  void say_success();
  void on_lost(const std::string& sentence);
  void on_ranks_ended();
  void enter(Phase next);
  void stop_within_grace();
  void tell_to_end();
  void later(Clock::duration delay, std::function<void()> handler);
  bool may_start_again() const;
  void start_again();
  void end_when_written();
  void on_left_out(const std::string& what, int reason, Sink* teller);
  int exit_code() const;
  void say(const std::string& sentence) {
    err_->line("rondorun: ", sentence);
    err_->flush();
  }

  const Options& options_;
  process::Supervision& supervision_;
  process::EventLoop loop_;
  Fd child_ended_;
  Sink out_;
  std::unique_ptr<Sink> own_err_;  // none when stdout and stderr are one file
  Sink* err_;
  std::optional<rendezvous::Secret> secret_;
  Fd secret_fd_;
  BoundCores bound_;
  std::unique_ptr<rendezvous::Server> server_;    // with one node
  std::string job_;                               // that meets there
  std::shared_ptr<rendezvous::Client> observer_;  // that asks it
  std::unique_ptr<Nodes> nodes_;                  // with several
  Placement at_;
  std::unique_ptr<Records> records_;     // of the ranks; none: nobody wants them
  std::unique_ptr<Ranks> ranks_;         // once all nodes are there
  std::optional<FailureReport> report_;  // of the failure, as it was then
  Phase phase_ = Phase::meeting;
  Verdict verdict_ = Verdict::awaited;
  std::optional<Failure> failure_;              // the first, as far as is known
  std::vector<Failure> others_;                 // of this node since then
  std::vector<Failure> left_behind_;            // without whom survivors went on
  int turn_ = 0;                                // how often that was, since the ranks were started
  bool window_over_ = false;                    // kSettle has passed since the failure
  bool told_to_end_ = false;                    // all ranks, because one failed
  bool said_finished_ = false;                  // to the other nodes
  bool failure_settled_ = false;                // no other may take its place
  std::optional<std::size_t> lines_when_said_;  // of all output, when the failure was said
  int end_signal_ = 0;                          // that the launcher was told to end with
  int interrupts_ = 0;
  bool waits_after_signal_ = false;
  int restarts_ = 0;
  bool left_out_ = false;  // something that ranks wrote
};

Launch::Launch(const Options& options, process::Supervision& supervision)
    : options_(options), supervision_(supervision), out_(loop_, STDOUT_FILENO, options.color), err_(&out_) {
  if (!same_file(STDOUT_FILENO, STDERR_FILENO)) {
    own_err_ = std::make_unique<Sink>(loop_, STDERR_FILENO, options_.color);
    err_ = own_err_.get();
  }
  out_.when_left_out([this](int reason) { on_left_out("stdout", reason, own_err_.get()); });
  if (own_err_) own_err_->when_left_out([this](int reason) { on_left_out("stderr", reason, &out_); });
}

int Launch::run() {
  loop_.watch(supervision_.control.get(), EPOLLIN, [this] { control(supervision_.control.get()); });
  if (options_.starter >= 0) loop_.watch(options_.starter, EPOLLIN, [this] { control(options_.starter); });
  child_ended_ = process::watch_adopted(loop_, [this](pid_t pid) { return ranks_ && ranks_->is_running(pid); });
  start();
  loop_.run();
  return exit_code();
}

void Launch::start() {
  open_files_of_programs();  // before anything raises ours
  if (options_.nodes == 1) return start_alone();
  secret_ = options_.secret;
  if (!options_.secret_file.empty()) secret_ = rendezvous::Secret::from_file(options_.secret_file);
  nodes_ = std::make_unique<Nodes>(loop_, options_, secret_,
                                   Nodes::Handlers{.waiting = [this](const std::string& sentence) { say(sentence); },
                                                   .joined = [this](const Placement& at) { start_ranks(at); },
                                                   .verdict = [this](const Failure& verdict) { on_verdict(verdict); },
                                                   .decision = [this](bool goes_on) { on_decision(goes_on); },
                                                   .lost = [this](const std::string& why) { on_lost(why); },
                                                   .left = [this] { enter(Phase::finishing); }});
}

void Launch::start_alone() {
  secret_ = options_.secret                ? *options_.secret
            : options_.secret_file.empty() ? rendezvous::Secret::generate()
                                           : rendezvous::Secret::from_file(options_.secret_file);
  // A rank's output, its process, its error file, its record, and its connection to our server; and what we need for
  // ourselves, at least, and our own connection to it.
  reserve_descriptors(6 * static_cast<std::size_t>(options_.local_size) + 7,
                      fmt::format("rondorun with {} ranks", options_.local_size));
  Placement placement;
  placement.local_size = placement.world_size = options_.local_size;
  placement.master_address = kOwnHost;
  placement.master_port = free_port();
  placement.restarts = restarts_;
  placement.job = options_.job.empty() ? fmt::format("rondorun-{}", ::getpid()) : options_.job;
  server_ = std::make_unique<rendezvous::Server>(rendezvous::ServerOptions{.bind = {placement.master_address},
                                                                           .secret = secret_,
                                                                           .encrypted = options_.encrypt,
                                                                           .job = placement.job,
                                                                           .link_patience = options_.link_patience});
  placement.rendezvous = endpoint_text(placement.master_address, server_->port());
  job_ = placement.job;
  start_ranks(placement);
}

void Launch::start_ranks(const Placement& placement) {
  if (end_signal_ != 0) return;  // told to end while the other nodes were being met
  Placement at = at_ = placement;
  const std::string sharing = sharing_sentence(at.local_size, options_.gpus.size(), options_.gpus_per_rank);
  if (!sharing.empty()) say(sharing);
  share_out_cores();
  if (secret_) secret_fd_ = secret_->to_memfd();
  at.secret_fd = secret_fd_.get();
  Ranks::Setup setup{
      .command = options_.command,
      .programs = {},
      .prefix = options_.prefix,
      .terminals = options_.terminals,
      .log_dir = options_.log_dir,
      .logged = options_.logged,
      .hidden = options_.hidden,
      .keep = at.secret_fd,
      .place = at.nodes > 1 || options_.starter >= 0 ? " on host " + host_name() : "",
      .signal_mask = supervision_.original_mask,
      .failed = [this](const Failure& failure) { on_failure(failure); },
      .ended_well =
          [this](int rank) {
            if (nodes_) nodes_->ended_well(rank, ranks_->who_ended_well(rank));
          },
      .ended = [this] { on_ranks_ended(); },
      .log_ends = [this](const std::string& file, int reason) { on_left_out("the log " + file, reason, err_); }};
  if (!options_.failure_dir.empty()) records_ = std::make_unique<Records>(loop_);
  for (int i = 0; i < at.local_size; ++i) {
    ErrorFile error_file;
    Fd record = records_ ? records_->open(at.first_rank + i) : Fd();
    at.error_file = error_file.path();
    at.record_fd = record.get();
    setup.programs.push_back({.rank = at.first_rank + i,
                              .arguments = rank_arguments(options_, i),
                              .environment = rank_environment(options_, at, i),
                              .shown = is_shown(options_, at.first_rank + i, i),
                              .cpus = options_.shares[static_cast<std::size_t>(i)].cpus,
                              .error_file = std::move(error_file),
                              .record = std::move(record)});
  }
  ranks_ = std::make_unique<Ranks>(loop_, std::move(setup), out_, *err_);
  enter(Phase::running);
  ranks_->start();
}

void Launch::share_out_cores() {
  if (restarts_ > 0) return;  // all has been said, and taken
  const std::string threads = options_.sets_threads ? threads_sentence(options_.cores, options_.shares) : "";
  if (!threads.empty()) say(threads);
  const auto others = bound_.take(options_.shares);
  if (!others.empty())
    say(
        fmt::format("ranks of another rondorun are bound to cores {} of this host, too: both run slower; without "
                    "--bind the kernel shares cores out",
                    cpu_list(others)));
}

// Signals that this launcher got, or the one that started it by ssh; at its end, or that of the connection, all ends.
void Launch::control(int from) {
  unsigned char signal = 0;
  if (::read(from, &signal, 1) == 1) return on_signal(signal);
  enter(Phase::abandoned);
}

void Launch::on_signal(int signal) {
  if (signal == SIGWINCH) {
    if (ranks_) ranks_->follow_size();
    return;
  }
  const bool ends = signal != SIGUSR1 && signal != SIGUSR2 && signal != SIGTSTP && signal != SIGCONT;
  if (ends && end_signal_ == 0) end_signal_ = signal;
  if (!ranks_) {  // still waiting for the other nodes
    if (!ends) return;
    failure_ = {.sentence = "", .exit_code = 128 + signal};
    return enter(Phase::finishing);
  }
  if (signal == SIGINT && ++interrupts_ > 1) {
    ranks_->signal(SIGKILL);
    if (phase_ >= Phase::ended) loop_.stop();  // only other nodes or a reader of our output are left
    return;
  }
  ranks_->signal(signal == SIGTSTP ? SIGSTOP : signal);
  if (!ends) return;
  loop_.at(Clock::now() + options_.grace_period, [this] { ranks_->signal(SIGKILL); });
  if (std::exchange(waits_after_signal_, true)) return;
  loop_.at(Clock::now() + kPatience, [this] { say_what_is_waited_for(); });
}

void Launch::say_what_is_waited_for() {
  const std::string again = end_signal_ == SIGINT ? ", at once after another SIGINT" : "";
  if (ranks_->running() > 0)
    return say(fmt::format("waiting for the end of rank{} {} after {}; killed {} s after it{}",
                           ranks_->running() == 1 ? "" : "s", ranks_->list_running(), process::signal_name(end_signal_),
                           static_cast<double>(options_.grace_period.count()) / 1000, again));
  if (phase_ == Phase::ended) say("waiting for the other nodes, as all ranks of this one have ended");
}

void Launch::on_failure(const Failure& failure) {
  const bool killed = failure.exit_code > 128;
  if (!failure_) {
    failure_ = failure;
    look_at_ranks();
    err_->fold(true);
    enter(Phase::stopping);
    // A rank that ends by itself may do so because another one, here or on another node, was killed: its peers can
    // notice that sooner than its launcher.
    later(killed ? milliseconds(0) : kHearsay, [this] { settle_failure(); });
  } else if (!failure_settled_ && killed && failure_->exit_code <= 128) {
    others_.push_back(*std::exchange(failure_, failure));
    settle_failure();
  } else {
    others_.push_back(failure);
  }
}

// When something has failed: those that run are asked what they are in.
void Launch::look_at_ranks() {
  if (!records_ || !ranks_ || report_ || end_signal_ != 0) return;
  report_.emplace();
  report_->at = at_;
  report_->happened = std::chrono::system_clock::now();
  report_->when_it_happened = ranks_->facts();
  records_->ask();
}

// A program that could not be started has done nothing.
void Launch::leave_folder() {
  if (!report_ || !failure_ || end_signal_ != 0 || failure_->exit_code == 126 || failure_->exit_code == 127) return;
  report_->sentence = failure_->sentence;
  report_->rank = failure_->rank;
  report_->now = ranks_->facts();
  records_->take_all();
  try {
    const auto folder = write_failure_folder(options_, *report_, *records_);
    say(fmt::format("what each rank did last{}: rondo explain {}",
                    options_.starter >= 0 ? " on host " + host_name() : "", folder.lexically_normal().string()));
  } catch (const std::exception& error) {
    say(fmt::format("what the ranks did last is lost: {}", error.what()));
  }
  report_.reset();
  records_->forget();
}

void Launch::settle_failure() {
  if (!failure_ || std::exchange(failure_settled_, true)) return;
  if (end_signal_ != 0)
    failure_ = {.sentence = "stopped by " + process::signal_name(end_signal_), .exit_code = 128 + end_signal_};
  else
    name_those_who_left(*failure_);
  if (nodes_) {  // said when the verdict has come, as another node's may be the first
    nodes_->report(turn_, *failure_);
    later(options_.grace_period + kVerdictLimit, [this] { on_lost(failure_->sentence); });
  } else {
    say_failure();
  }
}

// Who ended with exit code 0 while others needed it has failed no less than those.
void Launch::name_those_who_left(Failure& failure) const {
  if (failure.rank < 0) return;
  for (const int rank : failure.blamed) {
    const std::string who = ranks_->who_ended_well(rank);
    if (who.empty()) continue;
    failure.sentence = left_while_needed(who, failure.sentence);
    failure.blamed.clear();
    return;
  }
  const auto before = failure.exit_code > 128 ? std::vector<int>{} : ranks_->ended_well_before(failure.at);
  if (before.empty()) return;
  failure.sentence +=
      fmt::format("; before it rank{} {} had ended with exit code 0", before.size() == 1 ? "" : "s", cpu_list(before));
}

void Launch::say_failure() {
  say(failure_->sentence);
  lines_when_said_ = lines_said();
}

// Below all that the other ranks wrote about it.
void Launch::say_failure_again() {
  if (!failure_ || end_signal_ != 0 || !lines_when_said_ || *lines_when_said_ == lines_said()) return;
  const auto lines = ranks_->last_lines(failure_->rank);
  if (options_.starter >= 0 && lines.empty()) return;  // over ssh all launchers are heard, and one has them
  const auto ago = std::chrono::duration_cast<milliseconds>(Clock::now() - failure_->at).count();
  say(fmt::format("{}, {} ago{}", failure_->sentence,
                  ago < 1000 ? fmt::format("{} ms", ago) : fmt::format("{:.1f} s", static_cast<double>(ago) / 1000),
                  lines.empty() ? "" : "; its last lines were:"));
  for (const auto& line : lines) err_->line("rondorun:   ", line);
  err_->flush();
}

// The first failure of all nodes, which ends them all unless survivors go on; or success.
void Launch::on_verdict(const Failure& verdict) {
  verdict_ = verdict.exit_code == 0 ? Verdict::final : Verdict::known;
  if (verdict.exit_code != 0) {
    const bool ours = failure_ && verdict.sentence.find(failure_->sentence) != std::string::npos;
    if (failure_ && !ours && failure_->rank >= 0) others_.push_back(*failure_);
    if (ours)
      failure_->sentence = verdict.sentence;
    else
      failure_ = verdict;
    failure_settled_ = true;
    look_at_ranks();
    say_failure();
    enter(Phase::stopping);
    if (phase_ >= Phase::ended) nodes_->ended(turn_, failure_->rank);
    if (window_over_) judge();
    return;
  }
  say_success();
  if (phase_ >= Phase::ended) nodes_->leave();
}

// Of all nodes, about the verdict.
void Launch::on_decision(bool goes_on) {
  if (goes_on && end_signal_ == 0 && !told_to_end_) return go_on();
  verdict_ = Verdict::final;
  if (window_over_) tell_to_end();
  if (phase_ >= Phase::ended) nodes_->leave();
}

// The others had their time, or have ended: whether they go on without the rank that failed.
void Launch::judge() {
  const bool ends = verdict_ == Verdict::final || verdict_ == Verdict::lost;
  const bool waits = options_.continue_on_failure && phase_ == Phase::stopping && end_signal_ == 0 && !ends;
  if (waits) {
    err_->fold(false);
    later(kSettle, [this] { judge(); });
  }
  if (nodes_ && verdict_ == Verdict::known) {
    nodes_->judge(turn_, told_to_end_ ? -1 : failure_->rank, !waits);
    if (!waits) later(kDecisionLimit, [this] { tell_to_end(); });
  } else if (!nodes_ && is_missed(failure_->rank)) {
    go_on();
  } else if (!waits) {
    tell_to_end();
  }
}

bool Launch::is_missed(int rank) {
  if (rank < 0 || end_signal_ != 0 || told_to_end_) return false;
  try {
    const auto limit = Clock::now() + std::chrono::seconds(1);
    if (!observer_)
      observer_ = rendezvous::Client::connect(
          {.host = kOwnHost, .port = server_->port(), .secret = secret_, .job = job_, .encrypted = options_.encrypt},
          limit);
    return observer_->try_get(rendezvous::missed_key(rank)).has_value();
  } catch (const Error& error) {
    say(error.what());
    return false;
  }
}

// As if nothing had failed, but for what is said of it at the end. What else failed meanwhile has its own turn.
void Launch::go_on() {
  settle_failure();
  if (ranks_->running() > 0) say(fmt::format("the other ranks go on without rank {}", failure_->rank));
  leave_folder();
  left_behind_.push_back(*failure_);
  failure_.reset();
  failure_settled_ = window_over_ = false;
  lines_when_said_.reset();
  ++turn_;
  err_->fold(false);
  verdict_ = Verdict::awaited;
  phase_ = ranks_->running() > 0 ? Phase::running : Phase::ended;
  for (const Failure& other : std::exchange(others_, {})) on_failure(other);
  if (nodes_ && phase_ == Phase::ended) on_node_done();
}

void Launch::say_success() {
  for (const Failure& failure : left_behind_)
    say(fmt::format("{}; the other ranks went on without it and finished", failure.sentence));
}

void Launch::on_lost(const std::string& sentence) {
  if (std::exchange(verdict_, Verdict::lost) == Verdict::awaited) {
    if (!failure_) failure_ = {.sentence = sentence, .exit_code = 1};
    failure_settled_ = true;
    look_at_ranks();
    say_failure();
    enter(Phase::stopping);
  }
  if (phase_ == Phase::meeting || phase_ >= Phase::ended) enter(Phase::finishing);
}

// Whatever happens, each phase is entered once.
void Launch::enter(Phase next) {
  if (next <= phase_ || (next == Phase::stopping && phase_ == Phase::meeting)) return;
  phase_ = next;
  switch (phase_) {
    case Phase::meeting:
    case Phase::running:
    case Phase::ended:
      return;
    case Phase::stopping:
      return stop_within_grace();
    case Phase::finishing:
      leave_folder();
      return end_when_written();
    case Phase::abandoned:
      return loop_.stop();
  }
}

void Launch::stop_within_grace() {
  later(std::min(kSettle, options_.grace_period), [this] {
    if (!nodes_ && phase_ != Phase::stopping) return;
    window_over_ = true;
    judge();
  });
}

void Launch::tell_to_end() {
  if (std::exchange(told_to_end_, true)) return;
  const auto end_with = [this](int signal) {
    settle_failure();  // what ends from now on was told to
    err_->hold();
    ranks_->signal(signal);
  };
  if (options_.grace_period <= kSettle) return end_with(SIGKILL);
  end_with(SIGTERM);
  later(options_.grace_period - kSettle, [end_with] { end_with(SIGKILL); });
}

// Not if the ranks that it is about have been replaced by then, or go on.
void Launch::later(Clock::duration delay, std::function<void()> handler) {
  loop_.at(Clock::now() + delay, [this, attempt = restarts_, turn = turn_, handler = std::move(handler)] {
    if (attempt == restarts_ && turn == turn_) handler();
  });
}

// A program that cannot be started would not be able to the next time.
bool Launch::may_start_again() const {
  return failure_ && end_signal_ == 0 && restarts_ < options_.max_restarts && failure_->exit_code != 126 &&
         failure_->exit_code != 127;
}

// With a rendezvous of its own, where nobody is left from the last time.
void Launch::start_again() {
  leave_folder();
  say(fmt::format("starting again: restart {} of {}", ++restarts_, options_.max_restarts));
  failure_.reset();
  others_.clear();
  left_behind_.clear();
  failure_settled_ = window_over_ = told_to_end_ = false;
  lines_when_said_.reset();
  report_.reset();
  err_->fold(false);
  phase_ = Phase::meeting;
  ranks_.reset();
  records_.reset();
  observer_.reset();
  server_.reset();
  start_alone();
}

void Launch::on_ranks_ended() {
  const auto patience = interrupts_ > 1 ? milliseconds(0) : std::min(options_.grace_period, kTidyingLimit);
  const auto patience_ends = Clock::now() + patience;
  if (!process::end_descent(patience_ends, patience_ends + kKillLimit))
    say("some processes that the ranks left behind could not be killed");
  ranks_->finish_output();
  while (failure_ && !nodes_) {
    settle_failure();
    if (!is_missed(failure_->rank)) break;
    go_on();
  }
  if (may_start_again()) {
    settle_failure();
    loop_.post([this] {  // the ranks are calling
      if (end_signal_ == 0) return start_again();
      on_ranks_ended();
    });
    return;
  }
  say_failure_again();
  enter(Phase::ended);
  if (nodes_) return on_node_done();
  if (!failure_) say_success();
  enter(Phase::finishing);
}

// This node's ranks have ended, and those of others may run.
void Launch::on_node_done() {
  if (verdict_ == Verdict::lost) {
    settle_failure();
    return enter(Phase::finishing);
  }
  // A failure is reported when it counts: it may be the echo of another node's.
  if (!failure_ && !std::exchange(said_finished_, true)) nodes_->finished(turn_);
  if (failure_ && verdict_ == Verdict::known) nodes_->ended(turn_, failure_->rank);
  if (verdict_ == Verdict::final) nodes_->leave();
}

void Launch::end_when_written() {
  if (out_.empty() && err_->empty()) return loop_.stop();
  Sink& unfinished = out_.empty() ? *err_ : out_;
  unfinished.when_room([this] { end_when_written(); });
}

// The job goes on, as it does not run for its log; but it does not end as if all had been written.
void Launch::on_left_out(const std::string& what, int reason, Sink* teller) {
  left_out_ = true;
  if (teller == nullptr) return;  // stdout and stderr are the one that is full
  teller->line("rondorun: ", fmt::format("cannot write {}: {}; what ranks write there is lost from here on, and the "
                                         "exit code will not be 0",
                                         what, std::strerror(reason)));
  teller->flush();
}

int Launch::exit_code() const {
  if (phase_ == Phase::abandoned) return 128 + SIGKILL;
  return failure_ ? failure_->exit_code : left_out_ ? 1 : 0;
}

}  // namespace

int launch(const Options& options, process::Supervision& supervision) {
  const auto run = std::make_shared<Launch>(options, supervision);
  supervision.until_exit = run;
  return run->run();
}

}  // namespace rondo::launcher
