// SPDX-License-Identifier: Apache-2.0
// A host of its own for a job, so that whatever is left there is the job's.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/process/host.hpp"

namespace rondo::test {

// A host on which nothing is but what a job leaves.
class EmptyHost {
 public:
  EmptyHost() {
    const auto mounted = run(host_.inside({"mount", "-t", "tmpfs", "none", "/dev/shm"}));
    if (mounted.code != 0) throw std::runtime_error("mount: " + mounted.err);
    network_ = std::filesystem::read_symlink("/proc/" + host_.pid() + "/ns/net").string();
    usual_sockets_ = sockets();
  }
  const Host& host() const { return host_; }
  // By number, with their names.
  std::map<pid_t, std::string> processes() const {
    std::map<pid_t, std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos || name == host_.pid()) continue;
      std::error_code gone;
      if (std::filesystem::read_symlink(entry.path() / "ns/net", gone).string() != network_ || gone) continue;
      found[std::stoi(name)] = line_of(entry.path() / "comm");
    }
    return found;
  }
  // What there still is of it after so long, or nothing before.
  std::string left_after(std::chrono::milliseconds patience) const {
    const auto until = std::chrono::steady_clock::now() + patience;
    std::string all;
    while (!(all = left()).empty() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return all;
  }
  // What there is of it, in words; empty: nothing.
  std::string left() const {
    std::string all;
    for (const auto& [pid, name] : processes()) all += fmt::format(" {} ({})", name, pid);
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + host_.pid() + "/root/dev/shm"))
      all += " " + entry.path().filename().string();
    if (sockets() > usual_sockets_) all += fmt::format(" {} sockets", sockets() - usual_sockets_);
    return all;
  }

  void kill_all() const {
    for (const auto& [pid, name] : processes()) ::kill(pid, SIGKILL);
  }

 private:
  // The first line; nothing, of a process that has ended meanwhile.
  static std::string line_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
  }
  // Unix sockets and TCP ones that somebody holds; what has been closed waits in TIME_WAIT for a minute.
  std::size_t sockets() const {
    std::size_t count = 0;
    for (const char* table : {"unix", "tcp", "tcp6"}) {
      std::ifstream file("/proc/" + host_.pid() + "/net/" + table);
      std::string line;
      std::getline(file, line);  // the head
      while (std::getline(file, line)) {
        const bool listens_or_talks = line.find(" 0A ") != std::string::npos || line.find(" 01 ") != std::string::npos;
        if (table[0] == 'u' || listens_or_talks) ++count;
      }
    }
    return count;
  }
  Host host_;
  std::string network_;
  std::size_t usual_sockets_ = 0;
};

}  // namespace rondo::test
