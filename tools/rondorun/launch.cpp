// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/launch.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>

#include "comm/base/fd.hpp"
#include "comm/base/system_error.hpp"
#include "runtime/process/descent.hpp"
#include "runtime/process/event_loop.hpp"
#include "tools/rondorun/environment.hpp"
#include "tools/rondorun/free_port.hpp"
#include "tools/rondorun/output.hpp"
#include "tools/rondorun/ranks.hpp"

namespace rondo::launcher {
namespace {

using std::chrono::milliseconds;
using Clock = process::EventLoop::Clock;

// Ranks notice the loss of one by themselves and say what it cost them: they get this long before they are told to end.
constexpr milliseconds kSettle{250};
constexpr std::chrono::seconds kKillLimit{2};

bool same_file(int left, int right) {
  struct stat a {
  }, b{};
  return ::fstat(left, &a) == 0 && ::fstat(right, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

class Launch {
 public:
  Launch(const Options& options, process::Supervision& supervision);
  int run();

 private:
  void start();
  void control();
  void on_signal(int signal);
  void on_failure(const Failure& failure);
  void on_ranks_ended();
  void stop_within_grace();
  void end_when_written();
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
  std::unique_ptr<Ranks> ranks_;
  std::optional<Failure> failure_;
  int end_signal_ = 0;  // that the launcher was told to end with
  int interrupts_ = 0;
  bool launcher_gone_ = false;
};

Launch::Launch(const Options& options, process::Supervision& supervision)
    : options_(options), supervision_(supervision), out_(loop_, STDOUT_FILENO), err_(&out_) {
  if (!same_file(STDOUT_FILENO, STDERR_FILENO)) {
    own_err_ = std::make_unique<Sink>(loop_, STDERR_FILENO);
    err_ = own_err_.get();
  }
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  child_ended_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!child_ended_) throw_errno("cannot watch for the end of processes");
}

int Launch::run() {
  loop_.watch(supervision_.control.get(), EPOLLIN, [this] { control(); });
  loop_.watch(child_ended_.get(), EPOLLIN, [this] {
    signalfd_siginfo info;
    while (::read(child_ended_.get(), &info, sizeof info) > 0) continue;
    process::reap_adopted([this](pid_t pid) { return ranks_->is_running(pid); });
  });
  start();
  loop_.run();
  return exit_code();
}

void Launch::start() {
  Placement placement;
  placement.local_size = placement.world_size = options_.local_size;
  placement.master_address = "127.0.0.1";
  placement.master_port = free_port();
  placement.job = options_.job;
  Ranks::Setup setup{.command = options_.command,
                     .programs = {},
                     .prefix = options_.prefix,
                     .signal_mask = supervision_.original_mask,
                     .failed = [this](const Failure& failure) { on_failure(failure); },
                     .ended = [this] { on_ranks_ended(); }};
  for (int i = 0; i < placement.local_size; ++i)
    setup.programs.push_back({placement.first_rank + i, rank_environment(options_, placement, i)});
  ranks_ = std::make_unique<Ranks>(loop_, std::move(setup), out_, *err_);
  ranks_->start();
}

void Launch::control() {
  unsigned char signal = 0;
  if (::read(supervision_.control.get(), &signal, 1) == 1) return on_signal(signal);
  launcher_gone_ = true;  // our caller kills what is left
  loop_.stop();
}

void Launch::on_signal(int signal) {
  if (signal == SIGINT && ++interrupts_ > 1) {
    ranks_->signal(SIGKILL);
    if (ranks_->running() == 0) loop_.stop();  // only output is left
    return;
  }
  ranks_->signal(signal == SIGTSTP ? SIGSTOP : signal);
  if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGTSTP || signal == SIGCONT) return;
  if (end_signal_ == 0) {
    end_signal_ = signal;
    loop_.at(Clock::now() + options_.grace_period, [this] { ranks_->signal(SIGKILL); });
  }
}

void Launch::on_failure(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  if (end_signal_ != 0) return;
  say(failure.sentence);
  stop_within_grace();
}

void Launch::stop_within_grace() {
  if (options_.grace_period > kSettle) loop_.at(Clock::now() + kSettle, [this] { ranks_->signal(SIGTERM); });
  loop_.at(Clock::now() + options_.grace_period, [this] { ranks_->signal(SIGKILL); });
}

void Launch::on_ranks_ended() {
  if (!process::kill_descent(Clock::now() + kKillLimit))
    say("some processes that the ranks left behind could not be killed");
  ranks_->finish_output();
  if (end_signal_ != 0 && failure_) say("stopped by " + process::signal_name(end_signal_));
  end_when_written();
}

void Launch::end_when_written() {
  if (out_.empty() && err_->empty()) return loop_.stop();
  Sink& unfinished = out_.empty() ? *err_ : out_;
  unfinished.when_room([this] { end_when_written(); });
}

int Launch::exit_code() const {
  if (launcher_gone_) return 128 + SIGKILL;
  if (!failure_) return 0;
  return end_signal_ != 0 ? 128 + end_signal_ : failure_->exit_code;
}

}  // namespace

int launch(const Options& options, process::Supervision& supervision) { return Launch(options, supervision).run(); }

}  // namespace rondo::launcher
