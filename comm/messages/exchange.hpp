// SPDX-License-Identifier: Apache-2.0
// Messages in the hands of one thread at a time: receives that wait, messages that nobody has asked for yet, and what
// goes over the links with each peer. Nothing here blocks, knows of time, or wakes anybody.
//
// A short message travels whole, and lies with its receiver until it is asked for. A longer one is announced; once a
// receive takes it, the receiver reads it where it is, where the kernel does that, or asks for its bytes. So nothing
// long is kept twice, and no link is held up by what nobody has asked for.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/messages/batch.hpp"
#include "comm/team/team.hpp"
#include "comm/team/waiter.hpp"

namespace rondo::comm {

class Exchange {
 public:
  explicit Exchange(Team& team);

  // Errors of both: the communicator's failure is to be; then forget().
  void post(Operation& operation);
  bool advance();  // one look at everything that may go on; false: nothing did

  // A message alone, while idle(): without what it takes to remember it. False: it goes by post(), and nothing has
  // happened. Both are for links in the node's segment, and for messages that travel whole.
  bool send_at_once(const Call& call);
  enum class Look : std::uint8_t { received, not_here, goes_by_post };
  Look receive_at_once(const Call& call);

  bool idle() const { return operations_ == 0 && pending_ == 0; }  // and nothing is left to be said
  // Those that are done since the last clear_finished().
  const std::vector<Operation*>& finished() const { return finished_; }
  void clear_finished() { finished_.clear(); }
  // What has to happen before anything here can go on.
  void list_blocked(std::vector<Blocked>& blocked) const;
  // So many steps have come from the peer, and all that came with them is done.
  bool has_taken(int peer, std::uint64_t steps) const;
  bool awaits_peer(
      const Operation& operation) const;  // it goes on when the peer does something with it, and not before
  bool has_ended(int peer) const;         // its link: nothing more comes from it
  void forget();                          // all operations: they have failed
  void tell_unread();                     // to the team, before this rank leaves

 private:
  struct Unasked {  // a message that has come before its receive
    Envelope envelope;
    int source = -1;
    std::vector<std::byte> bytes{};
  };
  struct Incoming {  // a step whose bytes are still to come
    Envelope envelope;
    std::size_t bytes = 0;
    Operation* receive = nullptr;
    std::vector<std::byte> kept{};  // of a whole message that nobody has asked for
    std::byte* into = nullptr;
  };
  struct Channel {  // with one peer
    Links* links = nullptr;
    std::size_t operations = 0;  // that need this peer
    bool unflushed = false, ended = false;
    bool in_segment = false;                                   // its links
    std::size_t whole_bytes = 0;                               // longest message that travels whole
    std::deque<Operation*> sends{};                            // not yet told of
    std::deque<Envelope> replies{};                            // of this rank as a receiver
    std::deque<Operation*> cleared{};                          // announced sends whose bytes are asked for
    std::vector<Operation*> leaving{};                         // whose bytes the link may still need
    std::unordered_map<std::uint64_t, Operation*> told{};      // announced sends, by id
    std::unordered_map<std::uint64_t, Operation*> arriving{};  // receives of asked bytes, by the sender's id
    std::unordered_map<int, std::uint64_t> numbers{};          // of sends, by tag
    int latest_tag = 0;
    std::uint64_t* latest_number = nullptr;  // of that tag
    std::optional<Incoming> incoming{};
    std::uint64_t taken = 0;                          // steps
    std::atomic<std::uint64_t>* published = nullptr;  // counts steps, where the peer is on another node
    std::size_t owed = 0;                             // bytes sent whole that the peer has not said to have handed on
    std::size_t consumed = 0;  // bytes come whole and handed on that the peer has not been told of
  };
  struct Reading {  // an announced message, where it is
    Operation* receive;
    Envelope envelope;
    int source;
  };

  Channel& channel(int peer) { return channels_[static_cast<std::size_t>(peer)]; }
  bool wants_steps(const Channel& channel) const { return channel.operations + any_ != 0; }
  bool is_busy(const Channel& channel) const {
    return channel.operations + any_ + channel.replies.size() != 0 || channel.unflushed;
  }
  bool serve(int peer, Channel& with);
  // Receiving.
  bool take_step(int peer, Channel& from);
  void begin(int peer, Channel& from, std::size_t bytes);
  void complete(int peer, Channel& from);
  void answered(int peer, Channel& by, const Envelope& envelope);
  Operation* match(int source, const Envelope& envelope);
  bool take_unasked(Operation& receive);
  void agree(const Operation& receive, const Envelope& envelope, int source) const;
  void begin_receive(Operation& receive, const Envelope& envelope, int source);
  void hand_on(Operation& receive, const std::byte* bytes, int source);
  bool read_on();
  void reply(int peer, Envelope::Kind kind, std::uint64_t id);
  // Sending.
  void post_send(Operation& send);
  void post_to_itself(Operation& send);
  bool pump(Channel& to);
  void tell(Channel& to, Operation& send);
  bool may_send_whole(const Channel& to, std::uint64_t bytes) const;
  bool send_whole(Channel& to, const Envelope& envelope, const std::byte* from);
  static std::uint64_t next_number(Channel& to, int tag);
  void send_part(Channel& to);
  void flush(Channel& to);
  static void count_step(const Channel& to) {
    if (to.published != nullptr) to.published->fetch_add(1, std::memory_order_relaxed);
  }
  void finish(Operation& operation);

  Team& team_;
  const std::size_t whole_bytes_;   // longest message that lies in a slot
  const std::size_t least_read_;    // shortest that is read where it is
  std::vector<Channel> channels_;   // by peer
  std::deque<Operation*> waiting_;  // receives without a message, in order
  std::deque<Unasked> unasked_;     // messages without a receive, as they came
  std::deque<Reading> reading_;
  std::size_t operations_ = 0;  // not finished
  std::size_t pending_ = 0;     // replies not sent, and channels not flushed
  std::size_t any_ = 0;         // receives from any source among those that wait
  std::uint64_t next_id_ = 1;
  std::vector<Operation*> finished_;
};

}  // namespace rondo::comm
