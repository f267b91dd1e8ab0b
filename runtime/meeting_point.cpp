// SPDX-License-Identifier: Apache-2.0
#include "runtime/meeting_point.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <rondo/error.hpp>

#include "comm/base/limits.hpp"
#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "rendezvous/room.hpp"

namespace rondo::runtime {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFirstPause{5}, kLongestPause{250};
constexpr std::chrono::milliseconds kFirstAttempt{200}, kLongestAttempt{5000}, kLongestBetweenLooks{400};
constexpr std::chrono::seconds kForSiblings{1};
constexpr std::chrono::seconds kForSuccessor{2};  // of a server that went away while this rank joined

// What this process hosts. A second world of it at the same place shares the server of the first.
std::shared_ptr<Hosting> host_here(MeetingPoint& point, int world_size) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Hosting>> hosted;
  const std::lock_guard lock(mutex);
  std::erase_if(hosted, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = hosted.find(point.key()); found != hosted.end()) {
    if (auto mine = found->second.lock(); mine && mine->origin.is_here()) return mine;
  }
  auto made = point.try_host(world_size);
  if (made) log::debug("rank 0 serves by {}", point.describe());
  if (made) hosted[point.key()] = made;
  return made;
}

// What launches are called that nobody has named.
bool is_nameless(const std::string& job) { return job.empty() || job == "job" || job == "none" || job == "file"; }

class Meeting {
 public:
  Meeting(MeetingPoint& point, const rendezvous::JoinRequest& request, Store::Deadline deadline, const Lookout& lookout)
      : point_(point), request_(request), deadline_(deadline), lookout_(lookout), until_(deadline) {}

  Met run() {
    do {
      if (lookout_) lookout_();
      if (auto met = attempt()) return std::move(*met);
      std::this_thread::sleep_for(std::min<Clock::duration>(pause_, until_ - Clock::now()));
      pause_ = std::min(2 * pause_, kLongestPause);
    } while (Clock::now() < until_);
    if (lost_) throw *lost_;
    throw Error(ErrorCode::timeout, fmt::format("{} cannot meet rank 0 by {} before the deadline: {}",
                                                who_meets(request_), point_.describe(), reason_));
  }

 private:
  std::optional<Met> attempt() {
    try {
      auto hosting = may_host() ? host_here(point_, request_.world_size) : nullptr;
      const auto endpoint = hosting ? std::optional(hosting->endpoint) : point_.find(reason_, deadline_);
      if (!endpoint) return std::nullopt;
      auto client = connect(*endpoint, hosting != nullptr);
      if (!client) return std::nullopt;
      if (!hosting && !request_.again && !request_.enlists) give_way(*client, endpoint->job);
      const auto membership = client->join(request_, deadline_);
      return Met{std::move(hosting), std::move(client), *endpoint, membership};
    } catch (const rendezvous::NotYet& error) {
      reason_ = error.what();
    } catch (const Error& error) {
      // A server of this process's last world may end while we join it.
      if (error.error_code() != ErrorCode::peer_lost || (lost_ && !waits_in_line())) throw;
      lost_ = error;
      if (waits_in_line()) return std::nullopt;  // for the next job there, or the next server of this one
      until_ = std::min<Store::Deadline>(deadline_, Clock::now() + kForSuccessor);
    }
    return std::nullopt;
  }

  // Two jobs without names that start at once look alike, but for who started them. Ranks of one parent belong
  // together, so another's child leaves the place to its siblings for a while; who is no stranger loses little.
  void give_way(rendezvous::Client& client, const std::string& job) {
    static std::mutex mutex;
    static std::set<std::string> known;  // places that this process has joined, by who started their rank 0
    if (!is_nameless(job)) return;
    const auto theirs = client.try_get(rendezvous::kStarterKey);
    const std::string mine = parent_identity();
    if (!theirs || mine.empty()) return;
    const std::string starter(reinterpret_cast<const char*>(theirs->data()), theirs->size());
    if (starter == mine || !starter.starts_with(node_identity() + '.')) return;
    {
      const std::lock_guard lock(mutex);
      if (!known.insert(point_.key() + starter).second) return;
    }
    log::debug("another process than this rank's parent started rank 0 there: two jobs may meet, so this one waits");
    std::this_thread::sleep_for(std::min<Clock::duration>(kForSiblings, (deadline_ - Clock::now()) / 2));
  }

  // Who may host and joins whoever has the place looks again whether it is free: the other may end, or be nobody that
  // serves.
  std::shared_ptr<rendezvous::Client> connect(const rendezvous::Endpoint& endpoint, bool is_ours) {
    const bool may_become_free = may_host() && !is_ours;
    if (!point_.may_be_stale() && !may_become_free) return rendezvous::Client::connect(endpoint, deadline_);
    const std::string place = fmt::format("{}:{}", endpoint.host, endpoint.port);
    if (place != tried_) attempt_ = kFirstAttempt;
    tried_ = place;
    const auto until = std::min<Store::Deadline>(deadline_, Clock::now() + attempt_);
    attempt_ = std::min(2 * attempt_, lookout_ ? kLongestBetweenLooks : kLongestAttempt);
    try {
      return rendezvous::Client::connect(endpoint, until);
    } catch (const Error& error) {
      if (error.error_code() == ErrorCode::system) throw;  // this process's own lack, which no other server mends
      if (!point_.may_be_stale() && error.error_code() != ErrorCode::timeout) throw;
      reason_ = error.what() + point_.holder();
    }
    return nullptr;
  }

  // Where rank 0 is gone, any of those who met it there.
  bool waits_in_line() const { return request_.enlists && !request_.again; }
  bool may_host() const { return request_.rank == 0 || request_.again; }

  MeetingPoint& point_;
  const rendezvous::JoinRequest& request_;
  const Store::Deadline deadline_;
  const Lookout& lookout_;
  Store::Deadline until_;
  std::chrono::milliseconds pause_{kFirstPause}, attempt_{kFirstAttempt};
  std::string reason_, tried_;
  std::optional<Error> lost_;
};

}  // namespace

Met meet_at_point(MeetingPoint& point, const rendezvous::JoinRequest& request, Store::Deadline deadline,
                  const Lookout& lookout) {
  constexpr std::size_t kConnection = 2;  // and what wakes its thread
  reserve_descriptors(kConnection, who_meets(request));
  return Meeting(point, request, deadline, lookout).run();
}

}  // namespace rondo::runtime
