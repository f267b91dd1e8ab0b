// SPDX-License-Identifier: Apache-2.0
#include "tools/rondo/visit.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <stdexcept>

#include "comm/base/process_state.hpp"

namespace rondo::records {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kAnswerLimit{5};  // ranks have 1 s, the launcher a busy host

std::string pids_of(const std::vector<RunningJob>& jobs) {
  std::string out;
  for (const RunningJob& job : jobs) out += fmt::format("{}{}", out.empty() ? "" : ", ", job.launcher);
  return out;
}

Fd connect_to(const std::string& name) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    throw std::runtime_error("the job ended while it was looked for");
  return socket;
}

// Anybody may bind such a name.
void check_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid()) return;
  throw std::runtime_error(fmt::format("what answers is of user {}, and no launcher of this user", peer.uid));
}

}  // namespace

std::vector<RunningJob> running_jobs() {
  std::vector<RunningJob> jobs;
  std::ifstream sockets("/proc/net/unix");
  const std::string prefix = "@" + socket_prefix(::geteuid());
  for (std::string line; std::getline(sockets, line);) {
    const auto at = line.find(prefix);
    if (at == std::string::npos) continue;
    RunningJob job{.launcher = 0, .socket = line.substr(at + 1)};
    std::from_chars(line.data() + at + prefix.size(), line.data() + line.size(), job.launcher);
    const bool known =
        std::any_of(jobs.begin(), jobs.end(), [&](const RunningJob& other) { return other.socket == job.socket; });
    if (job.launcher > 0 && !known) jobs.push_back(std::move(job));  // its connections have the name, too
  }
  std::sort(jobs.begin(), jobs.end(), [](const RunningJob& a, const RunningJob& b) { return a.launcher < b.launcher; });
  return jobs;
}

RunningJob find_job(pid_t process) {
  const auto jobs = running_jobs();
  if (jobs.empty()) throw std::runtime_error("no job of this user runs on this host under rondorun");
  if (process == 0 && jobs.size() == 1) return jobs.front();
  if (process == 0)
    throw std::runtime_error(fmt::format("{} jobs run here: give the pid of one, {}", jobs.size(), pids_of(jobs)));
  for (pid_t at = process; at > 0;) {
    const auto found = std::find_if(jobs.begin(), jobs.end(), [at](const auto& job) { return job.launcher == at; });
    if (found != jobs.end()) return *found;
    const auto state = read_process(at);
    at = state ? state->parent : 0;
  }
  throw std::runtime_error(
      fmt::format("process {} is of no job of this user; launchers that run: {}", process, pids_of(jobs)));
}

Visit::Visit(const RunningJob& job) : socket_(connect_to(job.socket)) { check_user(socket_.get()); }

std::optional<Snapshot> Visit::look() {
  if (::send(socket_.get(), &kAskForSnapshot, 1, MSG_NOSIGNAL) != 1) return {};
  const auto deadline = Clock::now() + kAnswerLimit;
  std::array<char, 65536> bytes{};
  for (;;) {
    if (auto snapshot = reader_.next()) return snapshot;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    const int events = left > 0 ? ::poll(&ready, 1, static_cast<int>(left)) : 0;
    if (events < 0 && errno == EINTR) continue;
    if (events <= 0) throw std::runtime_error("the launcher does not answer: it may be stopped");
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    reader_.take({bytes.data(), static_cast<std::size_t>(got)});
  }
}

}  // namespace rondo::records
