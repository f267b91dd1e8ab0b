// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/ranks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "comm/base/process_state.hpp"
#include "comm/base/system_error.hpp"
#include "runtime/process/descent.hpp"
#include "tools/rondorun/blame.hpp"
#include "tools/rondorun/voice.hpp"

namespace rondo::launcher {
namespace {

using process::ExitStatus;

std::string prefix_for(int rank, bool colored) {
  constexpr std::array kColors{36, 33, 32, 35, 34, 96, 93, 92, 95, 94};  // not red: that is for errors
  if (!colored) return fmt::format("[{}] ", rank);
  return fmt::format("\033[{}m[{}]\033[0m ", kColors[static_cast<std::size_t>(rank) % kColors.size()], rank);
}

// A process has a handler of its own for this signal. False where that cannot be known.
bool handles(pid_t pid, int signal) {
  constexpr std::string_view kHandled = "SigCgt:";  // a mask in hexadecimal digits
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  std::uint64_t mask = 0;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kHandled)) std::istringstream(line.substr(kHandled.size())) >> std::hex >> mask;
  return (mask >> (signal - 1) & 1) != 0;
}

}  // namespace

std::string left_while_needed(const std::string& who, const std::string& failure) {
  return fmt::format("{} ended with exit code 0 while other ranks needed it: {}", who, failure);
}

// Static, as a job that is started again must not get the raised ones.
rlimit open_files_of_programs() {
  static const rlimit original = process::raise_open_files();
  return original;
}

struct Ranks::Rank {
  int rank = 0, index = 0;
  process::Child child{};
  bool running = false, ended_well = false, replaced = false;
  std::optional<ExitStatus> status{};
  process::EventLoop::Clock::time_point ended_at{};
  std::unique_ptr<Source> out{}, err{};
};

Ranks::Ranks(process::EventLoop& loop, Setup setup, Sink& out, Sink& err)
    : loop_(loop), setup_(std::move(setup)), out_(out), err_(err), open_files_(open_files_of_programs()) {}

Ranks::~Ranks() {
  for (const auto& rank : ranks_)
    if (rank->child.pidfd) loop_.forget(rank->child.pidfd.get());
}

void Ranks::start() {
  for (std::size_t i = 0; i < setup_.programs.size(); ++i) {
    ranks_.push_back(std::make_unique<Rank>());
    start(*ranks_.back(), static_cast<int>(i));
  }
}

pid_t Ranks::replace(RankProgram program) {
  const auto lost = std::find_if(ranks_.begin(), ranks_.end(),
                                 [&](const auto& one) { return one->rank == program.rank && !one->replaced; });
  if (lost != ranks_.end()) (*lost)->replaced = true;
  setup_.programs.push_back(std::move(program));
  ranks_.push_back(std::make_unique<Rank>());
  start(*ranks_.back(), static_cast<int>(ranks_.size()) - 1);
  return ranks_.back()->child.pid;
}

void Ranks::start(Rank& rank, int index) {
  const RankProgram& program = setup_.programs[static_cast<std::size_t>(index)];
  rank.rank = program.rank;
  rank.index = index;
  // Standard input is for local rank 0, so that a pipe into the launcher has one reader.
  const Fd nothing(index == 0 ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Channel out, err;
  if (setup_.prefix) {
    out = channel_for(program, 1, out_);
    err = channel_for(program, 2, err_);
    // Before it starts: it may ask at once how large its terminal is.
    rank.out = std::make_unique<Source>(loop_, std::move(out.reader), handling_for(program, 1, out_), out_);
    rank.err = std::make_unique<Source>(loop_, std::move(err.reader), handling_for(program, 2, err_), err_);
  }
  auto command = setup_.command;
  command.insert(command.end(), program.arguments.begin(), program.arguments.end());
  rank.child = process::start_program({.command = command,
                                       .environment = program.environment,
                                       .in = nothing.get(),
                                       .out = out.writer.get(),
                                       .err = err.writer.get(),
                                       .keep = kept_by(program),
                                       .index = index,
                                       .cpus = program.cpus,
                                       .mask = setup_.signal_mask,
                                       .open_files = open_files_},
                                      start_errors_);
  setup_.programs[static_cast<std::size_t>(index)].record.reset();  // the rank has it now
  rank.running = true;
  ++running_;
  loop_.watch(rank.child.pidfd.get(), EPOLLIN, [this, &rank] {
    if (const auto status = process::try_reap(rank.child.pidfd.get())) ended(rank, *status);
  });
}

std::vector<int> Ranks::kept_by(const RankProgram& program) const {
  std::vector<int> kept;
  if (setup_.keep >= 0) kept.push_back(setup_.keep);
  if (program.record) kept.push_back(program.record.get());
  return kept;
}

// What only goes to a file is no terminal: it would be drawn for nobody.
Channel Ranks::channel_for(const RankProgram& program, unsigned stream, const Sink& sink) {
  const bool seen = sink.is_terminal() && program.shown && (setup_.hidden & stream) == 0;
  const bool wanted = setup_.terminals == Terminals::always || (setup_.terminals == Terminals::where_shown && seen);
  if (!wanted || has_no_terminals_) return make_pipe();
  if (auto terminal = try_make_terminal()) return std::move(*terminal);
  if (setup_.terminals == Terminals::always) throw_errno("--pty always: cannot open a terminal for a rank's output");
  err_.line(kSpoken,
            fmt::format("ranks write into pipes, as no terminal can be opened for them: {}", std::strerror(errno)));
  has_no_terminals_ = true;
  return make_pipe();
}

Source::Handling Ranks::handling_for(const RankProgram& program, unsigned stream, const Sink& sink) const {
  const bool shown = (setup_.hidden & stream) == 0;
  Source::Handling result{.prefix = prefix_for(program.rank, sink.colored()),
                          .rank = program.rank,
                          .folds = stream == 2,
                          .prefix_width = static_cast<int>(prefix_for(program.rank, false).size()),
                          .shown = shown && program.shown,
                          .shown_at_end = shown && !program.shown};
  if ((setup_.logged & stream) == 0) return result;
  const auto folder = setup_.log_dir / std::to_string(program.rank);
  std::filesystem::create_directories(folder);
  const auto file = folder / (stream == 1 ? "stdout.log" : "stderr.log");
  result.log.reset(
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));  // after those of an earlier run
  if (!result.log) throw_errno("cannot write the log " + file.string());
  result.log_ends = [this, file](int reason) { setup_.log_ends(file, reason); };
  return result;
}

void Ranks::ended(Rank& rank, const ExitStatus& status) {
  loop_.forget(rank.child.pidfd.get());
  rank.child.pidfd.reset();
  rank.running = false;
  --running_;
  if (rank.out) rank.out->drain();
  if (rank.err) rank.err->drain();
  process::reap_adopted([this](pid_t pid) { return is_running(pid); });
  rank.ended_at = process::EventLoop::Clock::now();
  rank.ended_well = status.ok();
  rank.status = status;
  if (status.ok()) {
    setup_.ended_well(rank.rank);
  } else {
    if (rank.err && !std::exchange(last_words_shown_, true)) rank.err->show_last();
    setup_.failed(failure_of(rank, status));
  }
  if (running_ == 0) return setup_.ended();
  err_.hold();  // others may lack it, and say so all at once
}

Failure Ranks::failure_of(const Rank& rank, const ExitStatus& status) {
  if (const auto error = start_errors_.find(rank.index))
    return {.sentence = fmt::format("cannot {} '{}'{}: {}", error->binding ? "bind to its cores" : "start",
                                    setup_.command.front(), setup_.place, std::strerror(error->reason)),
            .exit_code = status.shell_code()};
  const std::string why = setup_.programs[static_cast<std::size_t>(rank.index)].error_file.message();
  return {.sentence = fmt::format("rank {} (pid {}) {}{}{}{}", rank.rank, rank.child.pid, status.describe(),
                                  setup_.place, why.empty() ? "" : ": ", why),
          .exit_code = status.shell_code(),
          .rank = rank.rank,
          .blamed = rank.err ? blamed_by(rank) : std::vector<int>{}};
}

// By their numbers here: those who shrank or grew count anew, and a pid says who is meant.
std::vector<int> Ranks::blamed_by(const Rank& rank) const {
  std::vector<int> result;
  for (const Blamed& one : blamed_in(rank.err->last_words() + rank.out->last_words())) {
    const auto meant = std::find_if(ranks_.begin(), ranks_.end(),
                                    [&](const auto& other) { return one.pid != 0 && other->child.pid == one.pid; });
    result.push_back(meant == ranks_.end() ? one.rank : (*meant)->rank);
  }
  return result;
}

std::string Ranks::who_ended_well(int rank) const {
  for (const auto& one : ranks_)
    if (one->rank == rank && one->ended_well)
      return fmt::format("rank {} (pid {}){}", rank, one->child.pid, setup_.place);
  return "";
}

std::vector<int> Ranks::ended_well_before(process::EventLoop::Clock::time_point time) const {
  std::vector<int> result;
  for (const auto& one : ranks_)
    if (one->ended_well && one->ended_at <= time) result.push_back(one->rank);
  return result;
}

std::vector<int> Ranks::all_stopped() const {
  std::vector<int> result;
  for (const auto& one : ranks_) {
    if (!one->running) continue;
    if (!is_halted(one->child.pid)) return {};
    result.push_back(one->rank);
  }
  return result;
}

std::vector<int> Ranks::who_runs() const {
  std::vector<int> result;
  for (const auto& one : ranks_)
    if (one->running) result.push_back(one->rank);
  return result;
}

std::string Ranks::list_running() const { return cpu_list(who_runs()); }

std::vector<std::string> Ranks::last_lines(int rank) const {
  for (const auto& one : ranks_) {
    if (one->rank != rank || one->replaced || !one->err) continue;
    const auto lines = one->err->last_lines();
    return lines.empty() ? one->out->last_lines() : lines;
  }
  return {};
}

std::vector<RankFacts> Ranks::facts() const {
  std::vector<RankFacts> all;
  for (const auto& one : ranks_) {
    if (one->replaced) continue;
    const auto process = one->running ? read_process(one->child.pid) : std::nullopt;
    all.push_back({.rank = one->rank,
                   .pid = one->child.pid,
                   .state = process ? process->state : '\0',
                   .ended = one->status,
                   .ended_at = one->ended_at,
                   .last_lines = last_lines(one->rank),
                   .replaces = setup_.programs[static_cast<std::size_t>(one->index)].replaces});
  }
  std::stable_sort(all.begin(), all.end(), [](const RankFacts& a, const RankFacts& b) { return a.rank < b.rank; });
  return all;
}

// SIGKILL is for the rank alone: what it leaves behind may have things to tidy.
void Ranks::signal(int signal) const {
  for (const auto& rank : ranks_)
    if (rank->running) ::kill(signal == SIGKILL ? rank->child.pid : -rank->child.pid, signal);
}

void Ranks::signal_those_who_handle(int signal) const {
  for (const pid_t pid : process::descendants())
    if (is_running(::getpgid(pid)) && handles(pid, signal)) ::kill(pid, signal);
}

bool Ranks::is_running(pid_t pid) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [pid](const auto& rank) { return rank->running && rank->child.pid == pid; });
}

void Ranks::follow_size() {
  for (const auto& rank : ranks_) {
    if (rank->out) rank->out->follow_size();
    if (rank->err) rank->err->follow_size();
  }
  signal(SIGWINCH);  // the kernel sends it to those alone whose controlling terminal it is
}

void Ranks::finish_output() {
  for (const auto& rank : ranks_) {
    if (rank->out) rank->out->finish();
    if (rank->err) rank->err->finish();
  }
  for (Sink* sink : {&out_, &err_}) {
    sink->release();
    sink->flush();
  }
}

}  // namespace rondo::launcher
