// SPDX-License-Identifier: Apache-2.0
#include "comm/base/process_descriptor.hpp"

#include <poll.h>
#include <sys/syscall.h>

#include <map>
#include <mutex>
#include <utility>

#include "comm/base/one_per_process.hpp"

namespace rondo {
namespace {

// As long as a process lives, or nobody has asked how it ended, no other one has its number.
bool has_ended(const Fd& process) {
  pollfd ended{process.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) != 0;
}

class OpenProcesses {
 public:
  std::shared_ptr<const Fd> open(int pid) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<const Fd>& known = by_pid_[pid];
    if (auto process = known.lock(); process && !has_ended(*process)) return process;
    Fd opened(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!opened) return nullptr;
    const auto process = std::make_shared<const Fd>(std::move(opened));
    known = process;
    return process;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::weak_ptr<const Fd>> by_pid_;
};

constinit OnePerProcess<OpenProcesses> open_processes;

}  // namespace

// It keeps those that are open known.
std::shared_ptr<const Fd> open_process(int pid) {
  struct Kept {
    std::shared_ptr<OpenProcesses> all;
    std::shared_ptr<const Fd> process;
  };
  const auto all = open_processes.get();
  auto process = all->open(pid);
  if (!process) return nullptr;
  const Fd* const descriptor = process.get();
  return {std::make_shared<Kept>(Kept{all, std::move(process)}), descriptor};
}

}  // namespace rondo
