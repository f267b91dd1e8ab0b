// SPDX-License-Identifier: Apache-2.0
// One rank's view of the ranks of its communicator: who shares its memory, the links with each, who has left, and the
// failure they share. Built by connect.cpp or local.cpp, which hand it links of any transport; the collectives run on
// it.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/team/control.hpp"
#include "comm/team/doorbell.hpp"
#include "comm/team/failure.hpp"
#include "comm/team/link.hpp"
#include "comm/team/pulses.hpp"
#include "comm/team/standing.hpp"

namespace rondo::comm {

struct Placement {  // of one rank
  int node = 0;
  int local_rank = 0;
  int segment_index = -1;     // in our segment; -1: it is not there
  bool shares_memory = true;  // with the other ranks of its node
  bool visible = false;       // its process is a neighbour's, whose id means the same here
  bool watched = false;       // so it is for another rank of its node
  std::string host;
  int pid = 0;
};

class Team {
 public:
  struct Parts {
    int rank = 0;
    std::vector<Placement> placement;  // by rank
    Segment segment;
    std::shared_ptr<const void> memory;  // keeps the segment mapped
    Doorbells bells;
    int cores = 1;        // that ranks of the node may use, as all of them know it;
    bool crowded = true;  // ranks outnumber the cores of their node
    // The kernel copies between the processes of all who share the segment, and what a page of it costs, in us.
    bool copies_memory = false;
    double copied_page_us = 0;
    std::shared_ptr<Monitor> monitor;  // null for ranks as threads
    std::chrono::milliseconds link_patience = kLinkPatience;
    System* system = &System::real();
  };
  explicit Team(Parts parts);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void add_links(int peer, Links links);          // with everybody, this rank included, before anything is sent
  void add_message_links(int peer, Links links);  // with everybody else, where messages go over links
  // Of every rank that is not in the segment; stream: over that, where connections are encrypted.
  void add_control(int peer, Fd control, std::unique_ptr<SecureStream> stream = nullptr);
  void add_pulses(int peer, std::array<Fd, 2> pulses);            // of every rank of another node, after its control
  void add_watch(int peer, Fd socket);                            // one that ends when the peer's process does
  void add_process(int peer, std::shared_ptr<const Fd> process);  // of a neighbour
  void start();  // after the last add_…(): from here on the monitor reports

  int rank() const { return parts_.rank; }
  int size() const { return static_cast<int>(parts_.placement.size()); }
  const Placement& placement(int peer) const { return parts_.placement[static_cast<std::size_t>(peer)]; }
  const Segment& segment() const { return parts_.segment; }
  const Doorbells& bells() const { return parts_.bells; }
  const Failure& failure() const { return failure_; }
  int cores() const { return parts_.cores; }
  bool crowded() const { return parts_.crowded; }
  bool copies_memory() const { return parts_.copies_memory; }
  double copied_page_us() const { return parts_.copied_page_us; }
  std::shared_ptr<Monitor> monitor() const { return parts_.monitor; }
  System& system() const { return *parts_.system; }
  std::chrono::milliseconds link_patience() const { return parts_.link_patience; }
  int own_index() const { return placement(rank()).segment_index; }
  RankLine& own_line() const { return parts_.segment.line(own_index()); }
  bool shares_memory(int peer) const { return placement(peer).segment_index >= 0; }

  SendLink& send_link(int peer) { return *links_[static_cast<std::size_t>(peer)].send; }
  RecvLink& recv_link(int peer) { return *links_[static_cast<std::size_t>(peer)].recv; }
  std::size_t longest_step(int peer) const { return links_[static_cast<std::size_t>(peer)].longest_step; }

  Links& message_links(int peer) { return message_links_[static_cast<std::size_t>(peer)]; }

  // First failure of all ranks wins; every rank gets it.
  void fail(ErrorCode code, const Culprits& culprits, std::string_view sentence);
  void fail(const Error& error);
  // This rank does: the communicator fails. Its process may end then: what it is to other communicators is told before,
  // and their ranks do not take it for lost.
  void abort();
  // To the ranks of other nodes, before a caller hears of it: it may end the process, which they would take for the
  // failure, and whoever failed first may not have told them.
  void pass_on_failure();
  // A link to the peer broke. Why, its control connection knows: waits a moment for a failure it announced before it
  // went, or its goodbye, or its end.
  void await_verdict(int peer) const;
  bool departed(int peer) const;        // it destroyed its communicator; what it had sent is still here
  bool lost(int peer) const;            // its process is gone
  void check_presence(int peer) const;  // throws when it is lost
  bool has_ended(int peer) const;       // the same, and also after its goodbye, as far as this host knows
  // Before this rank leaves for good: its process lives on and will never ask who has survived here, so the others need
  // not wait for that.
  void give_up();
  bool has_given_up(int peer) const;
  bool is_halted(int peer) const;  // its process is by a signal, as far as this host knows; not by a debugger
  // Asks the kernel whether the peer's process ends without a goodbye, which fails the communicator. It says so long
  // before descriptors do where the process has much memory. Not the monitor's thread.
  void look_whether_it_lives(int peer);
  // Devices: a rank frees what it exported once its importers have let go of it, or are gone. False: not by then.
  void announce_unmapped();
  bool await_unmapped(int peer, std::chrono::steady_clock::time_point until) const;
  // Monitored barriers: this rank's words change, and all ranks learn of it. 0: no verdict.
  void attend(std::uint64_t entered, std::uint64_t verdict);
  Attendance& attendance(int peer) const;  // as far as it is known here
  // Splits: in that one, counted from 1, this rank cannot share memory; the others must not wait until it does.
  void keep_apart(std::uint32_t split);
  bool keeps_apart(int peer, std::uint32_t split) const;
  // Until then, or something has happened that rings this rank's doorbell; false: it is too late.
  bool sleep_until(std::chrono::steady_clock::time_point until) const;
  // Collectives of the calling threads, and those enqueued for kernels, which count by themselves.
  enum class Side : std::uint8_t { host, device };
  // The latest collective the peer is known to be in: its history in shared memory, or what it announced while waiting.
  std::uint64_t arrived(int peer, Side side = Side::host) const;
  // The peer's signature of that sequence number, when it is known.
  bool signature_of(int peer, std::uint64_t sequence, Signature& out, Side side = Side::host) const;
  void announce_waiting(const Signature& signature);
  // Asks the others how far they are towards that collective, which this rank waits in; by rank, this one included.
  // Waits until all have answered, or for so long, or until the communicator has failed. Any thread but the monitor's.
  std::vector<Standing> inquire(const Signature& about, std::chrono::milliseconds patience);
  // The end of a sentence: what the peer is known to have entered last, without asking; empty: nothing is known of it.
  std::string describe_latest(int peer) const;
  // A mismatch: asks the others what they called, for a moment, and blames those whom most contradict.
  Error judge(const Difference& difference);
  // Two ranks that wait for each other in different things, for good. Throws the mismatch, which the communicator of
  // the other thing has then, too. Where no other thread of this process may call anything: this rank waits in a
  // message with the peer, of whose steps it has taken so many, or in a collective.
  void look_for_standoff(const std::string& message, int peer,
                         const std::function<bool(std::uint64_t steps)>& has_taken);
  void look_for_standoff(const Signature& mine);
  void announce_waiting_alone(const Signature& signature);  // where that is so
  std::atomic<std::uint64_t>* message_steps_to(int peer);   // counts those to a rank of another node; null: of this one
  // In what this rank's collectives differ from those of others, as far as both are known: those
  // of this node, and what others have announced. Empty: in nothing. Calls that need not wait for everybody leave it to
  // this. It tells the ranks of other nodes what this one was in last, for them to look.
  Difference find_disagreement();
  // Devices: a call is about to be enqueued; the collectives up to it in which this rank and others of its node differ.
  void note_device_call(const Signature& signature);
  void note_device_message(int peer, bool sends);
  void close_device_history();  // from here on graphs replay calls, and nobody knows how many
  Difference find_device_disagreement();
  // Devices: of such a call, outside of a graph by way of host memory, captured over kernels, ranks that do the one do
  // not meet those that do the other. Of two of this node the second learns it.
  Difference note_device_way(const Signature& signature, bool captured);
  // What this rank's kernels wait in. Ranks of other nodes compare it with theirs.
  void announce_device_wait(const Signature& signature);
  // In what this rank's call and the peer's differ.
  Difference find_difference(const Signature& mine, int peer, const Signature& theirs);
  // Of two that are known to differ in a collective up to that one: the earliest counts.
  Difference find_earliest_difference(std::uint64_t latest, int peer);
  // Before this rank leaves: a message of the peer's has come that nobody received. The first counts.
  void note_unread(int peer, const Signature& message);

 private:
  struct Remote;
  struct Messages {  // of kernels, with one peer
    std::uint64_t sent = 0, received = 0;
  };
  struct OfProcess;
  static std::shared_ptr<OfProcess> of_process();
  void enlist();
  void delist();
  Signature waits_for_this_alone(int peer) const;  // the collective that only this rank can end; sequence 0: none
  std::uint64_t message_steps_from(int peer) const;
  int rank_of_process(const Team& other, int peer) const;  // -1: it is not in this team, or may not be
  Error judge_standoff(const std::string& sentence, int peer, const Signature& in);
  void note_alone(int peer, const Signature& theirs, std::uint64_t after);
  const CallHistory& history(int peer, Side side) const;  // of a rank that shares the segment
  // Collective that this rank has entered; sequence 0: none, or nobody knows.
  Signature latest(Side side) const;
  void take_leave();
  void tell_all_before_leaving();
  void await_delivery(System::Time until, int excepted);  // or until it is known of each peer that it has come
  bool is_owed_something(int peer);
  Difference find_disagreement(Side side);
  std::string find_leftovers();
  std::string find_alone(int peer, Side side) const;
  std::string find_unread(int peer);
  std::string find_unread_on_device(int peer);
  std::string find_unread_message(int peer);
  Messages device_messages(int peer) const;
  bool may_leave_something(int peer) const;
  void watch(int peer, int fd);
  void on_exit(int peer);
  bool has_aborted(int peer) const;
  void note_abort();
  std::string describe_end(int peer, std::string_view otherwise) const;
  void on_loss(int peer, std::string_view reason);
  bool has_witnesses(int peer) const;
  void declare_lost(int peer, std::string_view reason);
  void on_silence(int peer, std::string_view reason, bool alone);
  std::string whole_name(int peer) const;
  bool unmapped(int peer) const;
  void on_waiting(int peer, const Signature& theirs);
  std::vector<Standing> hear_all(const Signature& about);
  void accuse(const Difference& difference);
  Standing standing(int peer, const Signature& about) const;
  bool is_seen_stopped(int peer) const;
  bool has_answered(int peer) const;
  Standing remote_standing(int peer, const Signature& about) const;
  const std::vector<int>& stopped_neighbours();
  void on_question(int peer, std::uint64_t question, const Signature& about);
  void on_answer(int peer, std::uint64_t question, int whom, const Signature& at, std::uint64_t flags);
  void on_apart(int peer, std::uint64_t split);
  void on_attendance(int peer, std::uint64_t entered, std::uint64_t verdict);
  void on_device_call(int peer, const Signature& theirs);
  void compare_device_calls(int peer);

  Parts parts_;
  Failure failure_;
  std::atomic<bool> passed_on_{false};
  std::vector<Links> links_, message_links_;  // by peer
  std::vector<std::string> unread_;           // by peer: a message of its that nobody received
  std::vector<std::unique_ptr<Remote>> remotes_;
  static constexpr std::size_t kSides = 2;
  std::array<std::vector<std::uint64_t>, kSides> agreed_{};  // by peer: collectives up to there have been compared
  std::array<std::uint64_t, kSides> told_{};                 // the latest that other nodes were told of for that
  mutable std::mutex device_calls_;                          // guards the rest, and what Remote says
  Signature device_wait_{};                                  // that kernels have waited in last
  std::vector<Messages> device_messages_;                    // by peer of another node
  std::mutex answers_;                                       // guards the rest, and what Remote has of answers
  std::condition_variable answered_;
  bool inquiring_ = false;      // one at a time
  std::uint64_t question_ = 0;  // the latest
  std::vector<int> stopped_;    // on the monitor's thread, with the time when it was found out
  std::chrono::steady_clock::time_point looked_for_stopped_{};
  std::vector<std::pair<Fd, int>> watches_;  // descriptor, rank
  std::vector<int> watch_ids_;
  int hearer_ = 0;
  std::vector<std::shared_ptr<const Fd>> processes_;  // by peer: of neighbours
  std::unique_ptr<Control> control_;
  std::unique_ptr<Pulses> pulses_;
  std::shared_ptr<OfProcess> fellows_;  // the teams of this process
  std::once_flag accused_;
  std::thread judge_;  // asks what the monitor's thread, which hears the answers, cannot wait for
};

}  // namespace rondo::comm
