// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/over_ssh.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "comm/base/env.hpp"
#include "comm/base/plain_text.hpp"
#include "comm/base/system_error.hpp"
#include "runtime/process/child.hpp"
#include "runtime/process/descent.hpp"
#include "runtime/process/event_loop.hpp"
#include "runtime/process/exit_status.hpp"
#include "tools/rondorun/far_side.hpp"
#include "tools/rondorun/output.hpp"
#include "tools/rondorun/terminal.hpp"
#include "tools/rondorun/voice.hpp"

namespace rondo::launcher {
namespace {

using Clock = process::EventLoop::Clock;

constexpr std::chrono::seconds kAnswerLimit{10};  // of hosts beyond the grace period, once one has ended
constexpr std::chrono::seconds kNotice{1};
constexpr std::size_t kWordsKept = 50;  // lines that ssh says before rondorun is there
constexpr int kSshFailed = 255;

// For the far host's shell, where it needs that: LSF's blaunch and others have none.
std::string quoted(const std::string& text) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || std::strchr("/._-+", letter) != nullptr;
  });
  if (is_plain) return text;
  std::string result = "'";
  for (const char letter : text) result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return result + "'";
}

std::vector<std::string> words_of_host(const Options& options, std::size_t node) {
  std::vector<std::string> words = options.far_flags;
  words.push_back(fmt::format("--nnodes={}", options.nodes));
  words.push_back(fmt::format("--node-rank={}", node));
  words.push_back(fmt::format("--nproc-per-node={}", options.hosts[node].ranks));
  words.push_back(fmt::format("--rdzv-id={}", options.job));
  if (options.nodes > 1) {
    words.push_back(fmt::format("--master-addr={}", options.master_address));
    words.push_back(fmt::format("--master-port={}", options.master_port));
  }
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

// The library's settings are the same on all ranks.
std::vector<std::string> settings() {
  std::vector<std::string> entries;
  for (const std::string& name : env_names_with_prefix("")) {
    if (!name.starts_with("RONDO_") && name != "OMP_NUM_THREADS") continue;
    if (const auto value = env(name)) entries.push_back(fmt::format("{}={}", name, *value));
  }
  return entries;
}

std::vector<std::string> whole_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

struct Far {
  std::size_t node = 0;
  std::string name{};
  process::Child ssh{};
  bool runs = false, is_here = false;
  Fd control{};
  std::string unsent{};
  std::unique_ptr<Source> out{}, err{};
  std::vector<std::string> first_words{};  // ssh's or a shell's
  std::optional<int> exit_code{};          // that it told us
};

class OverSsh {
 public:
  OverSsh(const Options& options, process::Supervision& supervision);
  int run();

 private:
  void start(Far& far);
  void send(Far& far, std::string_view bytes);
  void send_more(Far& far);
  bool take_line(Far& far, std::string_view line);
  void is_here(Far& far, const std::string& version);
  void ended(Far& far, const process::ExitStatus& status);
  std::string why_it_ended(const Far& far, const process::ExitStatus& status);
  void control();
  void on_signal(int signal);
  void fail(const std::string& sentence, int exit_code, bool others_notice = false);
  void hang_up();
  void give_up_later();
  void give_up();
  void end_when_written();
  bool all_are_here() const;
  void say(const std::string& sentence) {
    err_.line(kSpoken, plain_text(sentence));
    err_.flush();
  }

  const Options& options_;
  process::Supervision& supervision_;
  process::EventLoop loop_;
  Sink out_, err_;
  Fd child_ended_;
  process::StartErrors start_errors_;
  std::vector<std::unique_ptr<Far>> fars_;
  std::map<std::string, std::size_t, std::less<>> spoken_;  // what launchers said, and which was the first to
  std::optional<int> exit_code_;                            // of the first that failed
  bool failed_here_ = false;                                // for a reason of ours
  bool gives_up_ = false, left_out_ = false;
};

OverSsh::OverSsh(const Options& options, process::Supervision& supervision)
    : options_(options),
      supervision_(supervision),
      out_(loop_, STDOUT_FILENO, options.color),
      err_(loop_, STDERR_FILENO, options.color) {
  const auto lost = [this](int reason) {
    if (!std::exchange(left_out_, true)) say(fmt::format("cannot write all output: {}", std::strerror(reason)));
  };
  out_.when_left_out(lost);
  err_.when_left_out(lost);
}

int OverSsh::run() {
  loop_.watch(supervision_.control.get(), EPOLLIN, [this] { control(); });
  child_ended_ = process::watch_adopted(loop_, [this](pid_t pid) {
    return std::any_of(fars_.begin(), fars_.end(), [pid](const auto& far) { return far->runs && far->ssh.pid == pid; });
  });
  for (std::size_t node = 0; node < options_.hosts.size(); ++node) {
    fars_.push_back(std::make_unique<Far>());
    fars_.back()->node = node;
    fars_.back()->name = options_.hosts[node].name();
    start(*fars_.back());
  }
  loop_.run();
  if (!exit_code_ && left_out_) return 1;
  return exit_code_.value_or(0);
}

void OverSsh::start(Far& far) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe for a host's orders");
  const Fd in(ends[0]);
  far.control.reset(ends[1]);
  ::fcntl(far.control.get(), F_SETFL, O_NONBLOCK);
  Channel out = make_pipe(), err = make_pipe();
  auto command = options_.ssh;
  command.push_back(options_.hosts[far.node].login);
  command.insert(command.end(), {quoted(options_.far_program), std::string(kFarSide)});
  far.ssh = process::start_program({.command = command,
                                    .environment = whole_environment(),
                                    .in = in.get(),
                                    .out = out.writer.get(),
                                    .err = err.writer.get(),
                                    .index = static_cast<int>(far.node),
                                    .mask = supervision_.original_mask},
                                   start_errors_);
  far.runs = true;
  far.out = std::make_unique<Source>(loop_, std::move(out.reader), Source::Handling{.prefix = ""}, out_);
  far.err = std::make_unique<Source>(
      loop_, std::move(err.reader),
      Source::Handling{.prefix = "", .takes = [this, &far](std::string_view line) { return take_line(far, line); }},
      err_);
  loop_.watch(far.ssh.pidfd.get(), EPOLLIN, [this, &far] {
    const auto status = process::try_reap(far.ssh.pidfd.get());
    if (!status) return;
    loop_.forget(far.ssh.pidfd.get());
    ended(far, *status);
  });
  send(far, order_text({.version = RONDO_VERSION,
                        .secret = options_.secret->to_hex(),
                        .folder = std::filesystem::current_path(),
                        .environment = settings(),
                        .words = words_of_host(options_, far.node)}));
}

void OverSsh::send(Far& far, std::string_view bytes) {
  if (!far.control) return;
  const bool waits = !far.unsent.empty();
  far.unsent.append(bytes);
  if (!waits) send_more(far);
}

void OverSsh::send_more(Far& far) {
  while (!far.unsent.empty()) {
    const ssize_t sent = ::write(far.control.get(), far.unsent.data(), far.unsent.size());
    if (sent < 0 && errno == EAGAIN) {
      loop_.watch(far.control.get(), EPOLLOUT, [this, &far] {
        loop_.forget(far.control.get());
        send_more(far);
      });
      return;
    }
    if (sent < 0) return far.unsent.clear();  // ssh has ended, which is seen elsewhere
    far.unsent.erase(0, static_cast<std::size_t>(sent));
  }
}

// Of stderr. What all launchers say is said once.
bool OverSsh::take_line(Far& far, std::string_view line) {
  if (const auto said = said_by_far_side(line)) {
    if (said->version) is_here(far, *said->version);
    if (said->exit_code) far.exit_code = said->exit_code;
    if (!said->odd.empty())
      fail(fmt::format("rondorun on host {} says '{}', which is no exit code: install the same on every host", far.name,
                       said->odd),
           1);
    return true;
  }
  if (!far.is_here) {
    if (line.ends_with('\r')) line.remove_suffix(1);  // as ssh ends its own
    if (far.first_words.size() < kWordsKept) far.first_words.emplace_back(line);
    return true;
  }
  if (!line.starts_with(kSpoken)) return false;
  return spoken_.emplace(line, far.node).first->second != far.node;
}

void OverSsh::is_here(Far& far, const std::string& version) {
  far.is_here = true;
  if (version != RONDO_VERSION)
    fail(fmt::format("host {} has rondorun {} at {}, and this one is {}: install the same on every host", far.name,
                     version, options_.far_program, RONDO_VERSION),
         1);
  for (const auto& line : std::exchange(far.first_words, {})) err_.line("", line);
}

void OverSsh::ended(Far& far, const process::ExitStatus& status) {
  far.out->finish();
  far.err->finish();
  far.runs = false;
  if (!far.exit_code) {
    const bool others_notice = all_are_here();
    if (const auto error = start_errors_.find(static_cast<int>(far.node)))
      fail(fmt::format("cannot run {}: {}", options_.ssh.front(), std::strerror(error->reason)), status.shell_code());
    else
      fail(why_it_ended(far, status), 1, others_notice);
  } else if (*far.exit_code != 0 && !exit_code_) {
    exit_code_ = far.exit_code;
  }
  give_up_later();
  if (std::none_of(fars_.begin(), fars_.end(), [](const auto& each) { return each->runs; })) end_when_written();
}

std::string OverSsh::why_it_ended(const Far& far, const process::ExitStatus& status) {
  const std::string& ssh = options_.ssh.front();
  const std::string words = far.first_words.empty() ? "" : ": " + far.first_words.back();
  if (far.is_here)
    return fmt::format("rondorun on host {} or the connection to it is gone: {} {}", far.name, ssh, status.describe());
  if (status.code == kSshFailed || status.signal != 0)
    return fmt::format("cannot reach host {}: {} {}{}", far.name, ssh, status.describe(), words);
  return fmt::format("host {} cannot run rondorun at {}{}; install it there at the same path", far.name,
                     options_.far_program, words.empty() ? fmt::format(": {} {}", ssh, status.describe()) : words);
}

bool OverSsh::all_are_here() const {
  return std::all_of(fars_.begin(), fars_.end(), [](const auto& far) { return far->is_here; });
}

// The first reason is the one that is said. Launchers that have met notice by themselves, and say what it cost them.
void OverSsh::fail(const std::string& sentence, int exit_code, bool others_notice) {
  if (std::exchange(failed_here_, true) || gives_up_) return;
  for (const auto& far : fars_) {
    const auto& words = far->first_words;
    for (std::size_t i = 0; !far->runs && i + 1 < words.size(); ++i) err_.line("rondorun:   ", words[i]);
  }
  if (!exit_code_) exit_code_ = exit_code;
  say(sentence);
  if (others_notice)
    loop_.at(Clock::now() + kNotice, [this] { hang_up(); });
  else
    hang_up();
  give_up_later();
}

// Where rondorun is not there yet, nothing but ssh would notice.
void OverSsh::hang_up() {
  for (const auto& far : fars_) {
    if (far->runs && !far->is_here) ::kill(-far->ssh.pid, SIGKILL);
    if (!far->unsent.empty()) loop_.forget(far->control.get());
    far->unsent.clear();
    far->control.reset();
  }
}

void OverSsh::give_up_later() {
  loop_.at(Clock::now() + options_.grace_period + kAnswerLimit, [this] { give_up(); });
}

void OverSsh::give_up() {
  if (std::exchange(gives_up_, true)) return;
  for (const auto& far : fars_) {
    if (!far->runs) continue;
    say(fmt::format("host {} does not end: the connection to it is given up", far->name));
    if (!exit_code_) exit_code_ = 1;
    ::kill(-far->ssh.pid, SIGKILL);
  }
}

void OverSsh::control() {
  unsigned char signal = 0;
  if (::read(supervision_.control.get(), &signal, 1) == 1) return on_signal(signal);
  loop_.stop();  // our caller is gone, and kills what is left
}

void OverSsh::on_signal(int signal) {
  if (signal == SIGWINCH) return;
  const bool ends = signal != SIGUSR1 && signal != SIGUSR2 && signal != SIGTSTP && signal != SIGCONT;
  if (ends && !all_are_here()) return fail("stopped by " + process::signal_name(signal), 128 + signal);
  const char byte = static_cast<char>(signal);
  for (const auto& far : fars_) send(*far, {&byte, 1});
  if (ends) give_up_later();
}

void OverSsh::end_when_written() {
  if (out_.empty() && err_.empty()) return loop_.stop();
  Sink& unfinished = out_.empty() ? err_ : out_;
  unfinished.when_room([this] { end_when_written(); });
}

}  // namespace

int launch_over_ssh(const Options& options, process::Supervision& supervision) {
  const auto run = std::make_shared<OverSsh>(options, supervision);
  return run->run();
}

}  // namespace rondo::launcher
