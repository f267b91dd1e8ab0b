// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/mps.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
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

}  // namespace

Mps::Mps() : folder_(make_folder()) {
  try {
    start_daemon(folder_);
  } catch (...) {
    remove_folder(folder_);
    throw;
  }
}

Mps::~Mps() {
  try {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "a pipe");
    const Fd reader(ends[0]);
    {
      constexpr std::string_view kQuit = "quit\n";
      const Fd writer(ends[1]);
      if (::write(writer.get(), kQuit.data(), kQuit.size()) < 0)
        throw std::system_error(errno, std::generic_category(), "a pipe");
    }
    if (const int code = run_control({kControl}, folder_, reader.get()); code != 0)
      complain("rondorun", fmt::format("--mps: {} ended with {} when it was told to quit", kControl, code));
  } catch (const std::exception& error) {
    complain("rondorun", fmt::format("--mps: {}", error.what()));
  }
  remove_folder(folder_);
}

}  // namespace rondo::launcher
