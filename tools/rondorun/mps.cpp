// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/mps.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rondo/error.hpp>

#include "comm/base/fd.hpp"
#include "comm/base/plain_text.hpp"

namespace rondo::launcher {
namespace {

constexpr const char* kControl = "nvidia-cuda-mps-control";

std::vector<std::string> environment_for(const std::filesystem::path& folder) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("CUDA_MPS_")) all.emplace_back(*entry);
  }
  all.push_back("CUDA_MPS_PIPE_DIRECTORY=" + (folder / "pipe").string());
  all.push_back("CUDA_MPS_LOG_DIRECTORY=" + (folder / "log").string());
  return all;
}

std::vector<char*> c_pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

// Until the program has ended: its exit code, or 128 + its signal. Throws what kept it from starting.
int run_control(std::vector<std::string> command, const std::filesystem::path& folder, int in) {
  posix_spawn_file_actions_t files{};
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  std::vector<std::string> environment = environment_for(folder);
  pid_t pid = -1;
  const int code =
      ::posix_spawnp(&pid, kControl, &files, nullptr, c_pointers(command).data(), c_pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&files);
  if (code != 0) throw std::system_error(code, std::generic_category(), kControl);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Pipe {
  Fd reader, writer;
};

Pipe make_blocking_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "--mps: a pipe");
  return {Fd(ends[0]), Fd(ends[1])};
}

std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "rondo-mps-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), "--mps: a folder");
  for (const char* part : {"pipe", "log"}) std::filesystem::create_directory(std::filesystem::path(name) / part);
  return name;
}

void remove_folder(const std::filesystem::path& folder) {
  std::error_code ignored;  // what is left of a temporary folder is nobody's loss
  std::filesystem::remove_all(folder, ignored);
}

void start_daemon(const std::filesystem::path& folder) {
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int code = 0;
  try {
    code = run_control({kControl, "-d"}, folder, nothing.get());
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::unsupported,
                fmt::format("--mps: {} cannot be started ({}); it comes with NVIDIA's driver, and must be on the PATH",
                            kControl, error.code().message()));
  }
  if (code == 0) return;
  throw Error(ErrorCode::unsupported, fmt::format("--mps: {} -d ended with {}; without --mps ranks that share a GPU "
                                                  "take turns on it",
                                                  kControl, code));
}

void stop_daemon(const std::filesystem::path& folder) {
  try {
    const auto [reader, writer] = make_blocking_pipe();
    constexpr std::string_view kQuit = "quit\n";
    if (::write(writer.get(), kQuit.data(), kQuit.size()) < 0)
      throw std::system_error(errno, std::generic_category(), "a pipe");
    if (const int code = run_control({kControl}, folder, reader.get()); code != 0)
      complain("rondorun", fmt::format("--mps: {} ended with {} when it was told to quit", kControl, code));
  } catch (const std::exception& error) {
    complain("rondorun", fmt::format("--mps: {}", error.what()));
  }
}

// What the launcher tells its keeper.
constexpr char kStarts = 's', kFailed = 'f';

// In a session of its own and nobody's child, so that what ends the job does not end it. It has only what it needs:
// the end of its input is the launcher's, and its own end closes its output.
[[noreturn]] void keep(const std::filesystem::path& folder, int alive, int ended) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "rondo-mps");
  ::dup2(alive, STDIN_FILENO);
  ::dup2(ended, STDOUT_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  char last = kFailed;
  for (ssize_t got = 1; got != 0;) {
    got = ::read(STDIN_FILENO, &last, 1);
    if (got < 0 && errno != EINTR) break;
  }
  if (last == kStarts) stop_daemon(folder);
  remove_folder(folder);
  ::_exit(0);
}

}  // namespace

Mps::Mps() : folder_(make_folder()) {
  start_keeper();
  try {
    tell_keeper(kStarts);
    start_daemon(folder_);
  } catch (...) {
    tell_keeper(kFailed);
    throw;
  }
}

void Mps::start_keeper() {
  auto [alive_reader, alive_writer] = make_blocking_pipe();
  auto [ended_reader, ended_writer] = make_blocking_pipe();
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    alive_writer.reset();
    if (const pid_t keeper = ::fork(); keeper != 0) ::_exit(keeper > 0 ? 0 : 1);
    keep(folder_, alive_reader.get(), ended_writer.get());
  }
  int status = 0;
  if (child > 0) {
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  }
  if (child < 0 || status != 0) {
    remove_folder(folder_);
    throw Error(ErrorCode::system, "--mps: no process can be started that ends the daemon with the job");
  }
  alive_ = std::move(alive_writer);
  ended_ = std::move(ended_reader);
}

void Mps::tell_keeper(char what) const {
  if (::write(alive_.get(), &what, 1) < 0) throw std::system_error(errno, std::generic_category(), "--mps: a pipe");
}

Mps::~Mps() {
  alive_.reset();
  constexpr int kPatienceMs = 30'000;
  pollfd poll{.fd = ended_.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    const int ready = ::poll(&poll, 1, kPatienceMs);
    if (ready == 0) {
      complain("rondorun", fmt::format("--mps: {} does not end: see {}", kControl, folder_.string()));
      return;
    }
    char word = 0;  // what nvidia-cuda-mps-control has to say
    if (ready > 0 && ::read(ended_.get(), &word, 1) == 0) return;
    if (ready < 0 && errno != EINTR) return;
  }
}

}  // namespace rondo::launcher
