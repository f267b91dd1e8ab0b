// SPDX-License-Identifier: Apache-2.0
// What a communicator needs to know before it exists. Filled by runtime/ from a rendezvous, or by local().
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rondo/communicator.hpp>

#include "comm/setup/authenticator.hpp"
#include "comm/setup/encryption.hpp"
#include "comm/setup/process_facts.hpp"
#include "comm/setup/recruiter.hpp"
#include "comm/transport/lookout.hpp"

namespace rondo::comm {
struct Transport;
}

namespace rondo {

inline constexpr int kMostRanks = 1 << 20;  // of one world

// Of survivors that meet again because rank 0 served and is gone.
class MeetingAgain {
 public:
  explicit MeetingAgain(int job_size) : job_size_(job_size) {}
  int job_size() const { return job_size_; }  // who met when it served
  // Called now and then, while they meet; throws when that is in vain. Empty: nothing is known.
  void set_lookout(Lookout lookout) {
    const std::lock_guard lock(mutex_);
    lookout_ = std::move(lookout);
  }
  void look_out() const {
    const std::lock_guard lock(mutex_);
    if (lookout_) lookout_();
  }

 private:
  const int job_size_;
  mutable std::mutex mutex_;
  Lookout lookout_;
};

struct Bootstrap {
  int rank = 0;
  int world_size = 1;
  std::string name = "world";  // unique within the job; names keys in the store
  std::uint32_t generation = 0;
  std::optional<Store::Deadline> deadline;  // of meeting; none: options.join_timeout from now
  std::vector<int> job_ranks;            // by rank: its rank in the job, which the store knows it by; empty: the same
  std::shared_ptr<Store> store;          // kept: shrink() and grow() meet there again
  std::shared_ptr<Recruiter> recruiter;  // null: nobody can join later
  std::shared_ptr<MeetingAgain> meeting_again{};       // null: rank 0 does not serve
  Growth growth;                                       // of a process that joins one, see join_growth
  std::shared_ptr<const Authenticator> authenticator;  // null: peers prove nothing (a logged opt-out)
  std::shared_ptr<const Encryption> encryption{};  // of connections between hosts and over TCP; null: they are plain
  // Local addresses that reach the rendezvous, most preferred first; peers connect to them. Empty: loopback.
  std::vector<std::string> addresses;
  std::uint16_t first_port = 0, last_port = 0;               // range for peer connections; 0: any
  std::optional<comm::ProcessFacts> facts;                   // none: found out
  int driver = -1;                                           // of the communicator that this one comes from
  const std::vector<comm::Transport>* transports = nullptr;  // outlives the communicator; null: those of the library
};

// Every public entrance's look at its options. invalid_argument: one sentence that names the field. Times are at most
// kForEver afterwards.
RONDO_API Options checked(Options options);

// A process that was taken in meets the ranks of `bootstrap.growth`. peer_lost or aborted: one of them has gone or
// given up, and another communicator may take it in.
RONDO_API Communicator join_growth(Bootstrap bootstrap, const Options& options);

// Collective over `bootstrap.store`. Throws by the deadline.
RONDO_API Communicator make_communicator(Bootstrap bootstrap, const Options& options);

}  // namespace rondo
