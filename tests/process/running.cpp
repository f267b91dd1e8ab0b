// SPDX-License-Identifier: Apache-2.0
#include "tests/process/running.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>

namespace rondo::test {
namespace {

using Clock = std::chrono::steady_clock;

void need(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

Fd input_of(const std::string& text) {
  Fd file(::memfd_create("input", MFD_CLOEXEC));
  need(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()), "cannot write the input");
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

void read_some(Fd& from, std::string& to) {
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(from.get(), buffer.data(), buffer.size());
  if (count > 0) to.append(buffer.data(), static_cast<std::size_t>(count));
  if (count == 0) from.reset();
}

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left > 0 ? static_cast<int>(left) : 0;
}

}  // namespace

Running::Running(const std::vector<std::string>& command, const How& how) : limit_(how.limit), started_(Clock::now()) {
  int out[2], err[2];
  need(::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(err, O_CLOEXEC) == 0, "cannot make pipes");
  const Fd out_writer(out[1]), err_writer(err[1]), in = input_of(how.in);
  out_.reset(out[0]);
  err_.reset(err[0]);
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  need(pid_ >= 0, "cannot fork");
  if (pid_ == 0) {
    if (how.own_group) ::setpgid(0, 0);
    ::dup2(in.get(), 0);
    ::dup2(out_writer.get(), 1);
    ::dup2(how.one_stream ? out_writer.get() : err_writer.get(), 2);
    ::setenv("OMP_NUM_THREADS", "1", 0);       // or rondorun says what it makes of it; who wants that, unsets it
    ::setenv("RONDO_FAILURE_DIR", "none", 0);  // many a job here fails
    for (const auto& variable : how.environment) ::putenv(const_cast<char*>(variable.c_str()));
    ::execvp(argv[0], argv.data());
    ::_exit(125);
  }
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  need(static_cast<bool>(pidfd_), "cannot open a pidfd");
}

Running::~Running() {
  if (!pidfd_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool Running::read_more(int timeout_ms) {
  std::array<pollfd, 2> polls{pollfd{out_.get(), POLLIN, 0}, pollfd{err_.get(), POLLIN, 0}};
  if (!out_ && !err_) return false;
  if (::poll(polls.data(), polls.size(), timeout_ms) <= 0) return false;
  if (polls[0].revents != 0) read_some(out_, ended_.out);
  if (polls[1].revents != 0) read_some(err_, ended_.err);
  return true;
}

std::vector<std::string> Running::find_lines(const std::string& text) const {
  std::vector<std::string> found;
  for (std::size_t begin = 0, end = 0; (end = ended_.out.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string line = ended_.out.substr(begin, end - begin);
    if (line.starts_with('[')) line.erase(0, line.find("] ") + 2);
    if (line.starts_with(text)) found.push_back(line.substr(text.size()));
  }
  return found;
}

std::vector<std::string> Running::lines(const std::string& text, std::size_t count) {
  const auto deadline = Clock::now() + limit_;
  for (;;) {
    auto found = find_lines(text);
    if (found.size() >= count) return found;
    need(read_more(left_ms(deadline)),
         ("no " + std::to_string(count) + " lines '" + text + "' came; stderr:\n" + ended_.err).c_str());
  }
}

std::vector<std::string> Running::lines_so_far(const std::string& text) {
  while (read_more(0)) continue;
  return find_lines(text);
}

Ended Running::wait() {
  const auto deadline = Clock::now() + limit_;
  while (read_more(left_ms(deadline))) continue;
  pollfd poll{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  const bool in_time = ::poll(&poll, 1, left_ms(deadline)) == 1;
  if (!in_time) ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pidfd_.reset();
  need(in_time, "the program did not end in time");
  ended_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  ended_.code = WIFSIGNALED(status) ? 128 + ended_.signal : WEXITSTATUS(status);
  ended_.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  return ended_;
}

Ended run(const std::vector<std::string>& command, const Running::How& how) { return Running(command, how).wait(); }

std::string tool(const std::string& name) { return std::string(RONDO_TEST_BIN) + "/" + name; }

std::vector<std::string> rondorun(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), tool("rondorun"));
  return arguments;
}

Watched::Watched(const std::vector<std::string>& pids) {
  for (const auto& pid : pids) {
    pidfds_.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, std::atoi(pid.c_str()), 0)));
    need(static_cast<bool>(pidfds_.back()), "a process is gone too early");
  }
}

bool Watched::all_gone_within(std::chrono::milliseconds limit) const {
  const auto deadline = Clock::now() + limit;
  for (const auto& pidfd : pidfds_) {
    pollfd poll{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, left_ms(deadline)) != 1) return false;
  }
  return true;
}

}  // namespace rondo::test
