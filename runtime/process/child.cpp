// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/child.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "comm/base/system_error.hpp"
#include "kernels/thread.hpp"
#include "runtime/process/exit_status.hpp"

namespace rondo::process {
namespace {

constexpr int kNotFound = 127, kNotExecutable = 126;

// Which processors, as the kernel wants it; none for none.
std::vector<cpu_set_t> mask_of(const std::vector<int>& cpus) {
  std::vector<cpu_set_t> mask;
  for (const int cpu : cpus) {
    const auto set = static_cast<std::size_t>(cpu) / CPU_SETSIZE;
    if (set >= mask.size()) mask.resize(set + 1);
    CPU_SET(cpu % CPU_SETSIZE, &mask[set]);
  }
  return mask;
}

// In the child, between fork and exec: nothing here allocates.
[[noreturn]] void give_up(const StartError& error, int errors) {
  [[maybe_unused]] const auto written = ::write(errors, &error, sizeof error);  // fits: far below PIPE_BUF
  ::_exit(error.reason == ENOENT ? kNotFound : kNotExecutable);
}

// The same.
[[noreturn]] void become(const Program& program, const std::vector<cpu_set_t>& cpus, char* const* argv,
                         char* const* envp, int errors) {
  ::setpgid(0, 0);
  const int streams[] = {program.in, program.out, program.err};
  for (int i = 0; i < 3; ++i)
    if (streams[i] >= 0) ::dup2(streams[i], i);
  if (program.open_files.rlim_max != 0) ::setrlimit(RLIMIT_NOFILE, &program.open_files);
  for (const int fd : program.keep) ::fcntl(fd, F_SETFD, 0);
  if (!cpus.empty() && ::sched_setaffinity(0, cpus.size() * sizeof(cpu_set_t), cpus.data()) != 0)
    give_up({.index = program.index, .reason = errno, .binding = true}, errors);
  ::execvpe(argv[0], argv, envp);
  give_up({.index = program.index, .reason = errno}, errors);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const auto& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

int code_of(const std::function<int()>& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    ::dprintf(STDERR_FILENO, "rondo: %s\n", kNoMemory);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rondo: %s\n", error.what());
  }
  return 1;
}

Child fork_child(const sigset_t& mask, const std::function<int()>& body) {
  std::fflush(nullptr);  // or the child would write our buffers once more
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("cannot fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(128 + SIGKILL);  // it died before prctl
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    const int code = code_of(body);
    std::fflush(nullptr);
    ::_exit(code);
  }
  return {.pid = pid, .pidfd = open_pidfd(pid)};
}

rlimit raise_open_files() {
  rlimit before{};
  if (::getrlimit(RLIMIT_NOFILE, &before) != 0) throw_errno("cannot read the limit of open files");
  const rlimit raised{.rlim_cur = before.rlim_max, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

StartErrors::StartErrors() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw_errno("cannot make a pipe");
  reader_.reset(ends[0]);
  writer_.reset(ends[1]);
}

std::optional<StartError> StartErrors::find(int index) {
  StartError error;
  while (::read(reader_.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error)) seen_.push_back(error);
  for (const auto& seen : seen_)
    if (seen.index == index) return seen;
  return std::nullopt;
}

Child start_program(const Program& program, const StartErrors& errors) {
  const auto argv = pointers(program.command);
  const auto envp = pointers(program.environment);
  const auto cpus = mask_of(program.cpus);
  auto child =
      fork_child(program.mask, [&]() -> int { become(program, cpus, argv.data(), envp.data(), errors.writer()); });
  ::setpgid(child.pid, child.pid);  // whichever of the two comes first; EACCES after exec is fine
  return child;
}

}  // namespace rondo::process
