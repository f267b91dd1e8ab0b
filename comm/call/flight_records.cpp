// SPDX-License-Identifier: Apache-2.0
#include "comm/call/flight_records.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>

#include "comm/base/json_text.hpp"
#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "comm/base/one_per_process.hpp"
#include "comm/base/process_state.hpp"
#include "comm/call/communicator_impl.hpp"

namespace rondo::comm {
namespace {

constinit OnePerProcess<FlightRecords> the_records;

template <class Clock>
std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
}

// The two clocks at one moment: of some tries the one that took least, for others are interrupted.
struct Moment {
  std::int64_t steady_us = 0, wall_us = 0;
};
Moment this_moment() {
  constexpr int kTries = 8;
  Moment best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kTries && least > 0; ++i) {
    const std::int64_t before = now_us<std::chrono::steady_clock>(), wall = now_us<std::chrono::system_clock>(),
                       took = now_us<std::chrono::steady_clock>() - before;
    if (took >= least) continue;
    least = took;
    best = {.steady_us = before, .wall_us = wall};
  }
  return best;
}

int job_rank(const detail::CommunicatorImpl& communicator, int rank) {
  const auto& ranks = communicator.bootstrap().job_ranks;
  return ranks.empty() ? rank : ranks[static_cast<std::size_t>(rank)];
}

int own_rank(const detail::CommunicatorImpl& communicator) { return job_rank(communicator, communicator.rank()); }

// The collectives that the segment remembers of a rank that cannot say it itself.
std::string history_of(const Team& team, int peer) {
  std::string out;
  const std::uint64_t latest = team.arrived(peer);
  for (std::uint64_t s = latest - std::min(latest, kHistory) + 1; latest != 0 && s <= latest; ++s) {
    Signature at;
    if (team.signature_of(peer, s, at)) out += fmt::format("{}\n    {{{}}}", out.empty() ? "" : ",", json_fields(at));
  }
  return out;
}

std::string peer_of(const detail::CommunicatorImpl& communicator, int peer, bool with_history) {
  const Team& team = communicator.team();
  const Placement& at = team.placement(peer);
  const std::string_view state = team.lost(peer)                    ? "lost"
                                 : team.departed(peer)              ? "left"
                                 : at.visible && is_stopped(at.pid) ? "stopped"
                                                                    : "";
  return fmt::format(
      "{{\"rank\": {}, \"job_rank\": {}, \"host\": {}, \"pid\": {}, \"state\": \"{}\", \"entered\": {}, "
      "\"entered_on_device\": {}, \"history\": [{}]}}",
      peer, job_rank(communicator, peer), json_text(at.host), at.pid, state, team.arrived(peer),
      team.arrived(peer, Team::Side::device), with_history ? history_of(team, peer) : "");
}

// Those who are gone or behind first: of many ranks the others are left out.
std::string peers_of(const detail::CommunicatorImpl& communicator) {
  constexpr std::size_t kMost = 16, kMostHistories = 4;
  const Team& team = communicator.team();
  const auto urgency = [&](int peer) {
    if (team.lost(peer) || team.departed(peer)) return std::uint64_t{0};
    return 1 + team.arrived(peer);
  };
  std::vector<std::pair<std::uint64_t, int>> peers;
  for (int peer = 0; peer < team.size(); ++peer)
    if (peer != team.rank()) peers.emplace_back(urgency(peer), peer);
  std::sort(peers.begin(), peers.end());
  peers.resize(std::min(peers.size(), kMost));
  std::string out;
  std::size_t histories = 0;
  for (const auto& [urgent, peer] : peers) {
    const bool with_history = urgent == 0 && histories++ < kMostHistories;
    out += fmt::format("{}\n   {}", out.empty() ? "" : ",", peer_of(communicator, peer, with_history));
  }
  return out;
}

// A descriptor's number may mean another file by now, as programs close what they do not know.
bool leads_to_launcher(int fd) {
  int domain = 0, type = 0;
  socklen_t length = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX &&
         ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

void write_file(const std::string& path, const std::string& document) {
  std::ofstream file(path);
  file << document;
  if (!file.flush()) log::error("cannot write the flight record {}: {}", path, std::strerror(errno));
}

}  // namespace

std::string flight_record(const detail::CommunicatorImpl& communicator) {
  const Team& team = communicator.team();
  return fmt::format(
      "{{\"name\": {}, \"generation\": {}, \"rank\": {}, \"world_size\": {}, \"job_rank\": {}, \"failure\": {},\n"
      " \"calls\": {},\n \"peers\": [{}]}}\n",
      json_text(communicator.bootstrap().name), communicator.bootstrap().generation, team.rank(), team.size(),
      own_rank(communicator), json_text(team.failure().sentence()), communicator.calls_as_json(),
      peers_of(communicator));
}

std::shared_ptr<FlightRecords> FlightRecords::of_process() { return the_records.get(); }

FlightRecords::~FlightRecords() {
  if (monitor_) monitor_->unwatch(watch_);
}

// Ranks as threads have no monitor, and are none of rondorun's.
void FlightRecords::enroll(const detail::CommunicatorImpl& communicator) {
  const std::lock_guard lock(mutex_);
  enrolled_.push_back(&communicator);
  const bool is_process = communicator.team().monitor() != nullptr;
  if (is_process && launcher_ < 0 && communicator.config().record_fd >= 0) listen(communicator.config().record_fd);
}

// What the rank starts does not get it.
void FlightRecords::listen(int launcher) {
  if (!leads_to_launcher(launcher)) {
    log::debug("RONDO_RECORD_FD={} does not lead to rondorun: a failure leaves no record of this rank", launcher);
    return;
  }
  ::fcntl(launcher, F_SETFD, FD_CLOEXEC);
  launcher_ = launcher;
  monitor_ = Monitor::of_process();
  watch_ = monitor_->watch(launcher, [this] { return answer(); });
}

void FlightRecords::leave(const detail::CommunicatorImpl& communicator) {
  const std::lock_guard lock(mutex_);
  std::erase(enrolled_, &communicator);
}

// False: nobody will ask any more.
bool FlightRecords::answer() {
  bool asked = false;
  char word = 0;
  ssize_t got = 0;
  while ((got = ::recv(launcher_, &word, 1, MSG_DONTWAIT)) > 0) asked = asked || word == kAskForRecord;
  if (asked) {
    const std::lock_guard lock(mutex_);
    tell_launcher(RecordKind::asked, document(nullptr, true));
  }
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

void FlightRecords::write(const detail::CommunicatorImpl& failed) {
  const std::lock_guard lock(mutex_);
  const std::string& folder = failed.config().flight_recorder;
  const int rank = own_rank(failed);
  if (!folder.empty()) write_file(fmt::format("{}/rank{}.json", folder, rank), document(&failed, false));
  tell_launcher(RecordKind::failure, document(&failed, true));
}

// rondorun takes it at once, unless it is stopped; nobody waits for it.
void FlightRecords::tell_launcher(RecordKind kind, const std::string& document) const {
  if (launcher_ < 0) return;
  const std::string packet = static_cast<char>(kind) + document;
  if (::send(launcher_, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
    log::debug("cannot give rondorun this rank's record: {}", std::strerror(errno));
}

// The failed one first, then those made last, as many as fit; of the whole process, or of the failed one's rank alone,
// as a process may be several ranks.
std::string FlightRecords::document(const detail::CommunicatorImpl* failed, bool whole_process) const {
  const Moment now = this_moment();
  std::string out = fmt::format(
      "{{\"format\": 1, \"host\": {}, \"pid\": {}, \"steady_us\": {}, \"wall_us\": {}, \"communicators\": [",
      json_text(host_name()), ::getpid(), now.steady_us, now.wall_us);
  std::vector<const detail::CommunicatorImpl*> all(enrolled_.rbegin(), enrolled_.rend());
  if (failed != nullptr) {
    std::erase(all, failed);
    all.insert(all.begin(), failed);
  }
  std::size_t left_out = 0;
  const char* separator = "";
  for (const auto* communicator : all) {
    if (!whole_process && own_rank(*communicator) != own_rank(*failed)) continue;
    constexpr std::size_t kRest = 64;
    const std::string record = flight_record(*communicator);
    const bool fits = out.size() + record.size() + kRest < kMostRecordBytes;
    left_out += fits ? 0 : 1;
    if (!fits) continue;
    out += separator + record;
    separator = ",";
  }
  return out + fmt::format("], \"left_out\": {}}}\n", left_out);
}

}  // namespace rondo::comm
