// SPDX-License-Identifier: Apache-2.0
// Ranks that meet by a name that anybody on the machine may take.
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr uid_t kNobody = 65534;
constexpr int kNames = 8;

Running::How rank_of(const std::string& job, int rank, int world_size) {
  return {.environment = {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(world_size),
                          "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "RONDO_JOB=" + job}};
}

// The abstract names, without their @, that a process listens at.
std::vector<std::string> names_of(pid_t pid) {
  std::vector<std::string> sockets, names;
  std::error_code gone;
  const std::filesystem::path folder("/proc/" + std::to_string(pid) + "/fd");
  for (std::filesystem::directory_iterator at(folder, gone), end; !gone && at != end; at.increment(gone)) {
    std::error_code closed;
    sockets.push_back(std::filesystem::read_symlink(at->path(), closed).string());
  }
  std::ifstream table("/proc/net/unix");
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string field, inode, name;
    for (int i = 0; i < 6; ++i) fields >> field;
    fields >> inode >> name;
    const bool is_its = std::find(sockets.begin(), sockets.end(), "socket:[" + inode + "]") != sockets.end();
    if (is_its && name.starts_with("@rondo-" + std::to_string(::getuid()) + "-")) names.push_back(name.substr(1));
  }
  return names;
}

// Another user's process that has a name, until it is destroyed.
class Squatter {
 public:
  Squatter(const std::string& name, bool listens) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_ = ::fork();
    if (pid_ == 0) ::_exit(squat(name, listens, ends[1]));
    ::close(ends[1]);
    char byte = 0;
    const bool ready = ::read(ends[0], &byte, 1) == 1;
    ::close(ends[0]);
    REQUIRE(ready);
  }
  ~Squatter() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Squatter(const Squatter&) = delete;
  Squatter& operator=(const Squatter&) = delete;

 private:
  static int squat(const std::string& name, bool listens, int ready) {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return 1;
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return 2;
    if (listens && ::listen(fd, 1) != 0) return 3;
    if (::write(ready, "r", 1) != 1) return 4;
    for (;;) ::pause();
  }
  pid_t pid_ = -1;
};

// Where rank 0 of the job waits now.
std::string name_of_rank_0(const std::string& job) {
  Running rank({tool("reducer"), "reduce"}, rank_of(job, 0, 2));
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (std::chrono::steady_clock::now() < until) {
    if (const auto names = names_of(rank.pid()); !names.empty()) return names.front();
    std::this_thread::yield();
  }
  FAIL("rank 0 listens nowhere");
  return {};
}

}  // namespace

TEST_CASE("another user that holds the names of a meeting does not keep its ranks apart, and is told of in the end") {
  if (::geteuid() != 0) {
    std::cout << "skipped: only root can be another user here\n";
    return;
  }
  const std::string job = "squatted-" + std::to_string(::getpid());
  std::deque<Squatter> squatters;
  for (int held = 0; held < kNames; ++held) {
    const std::string name = name_of_rank_0(job);
    CAPTURE(held, name);
    squatters.emplace_back(name, held % 2 == 0);
    if (held + 1 == kNames) break;
    std::deque<Running> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back(std::vector<std::string>{tool("reducer"), "reduce"}, rank_of(job, rank, 2));
    }
    for (Running& rank : ranks) {
      const auto ended = rank.wait();
      INFO(ended.out << ended.err);
      CHECK(ended.code == 0);
      CHECK(ended.seconds < 10);
    }
  }
  const auto refused = run({tool("reducer"), "reduce"}, rank_of(job, 0, 2));
  INFO(refused.out);
  CHECK(refused.code == 1);
  CHECK(refused.out.find("all 8 names of ") != std::string::npos);
  CHECK(refused.seconds < 10);
}
