// SPDX-License-Identifier: Apache-2.0
// A job in simulated time: its ranks' teams, waiters, control connections and pulses are the real ones. What is
// simulated is what lies between them: the network, which delays and is cut, processes that are killed and stopped, and
// collectives in which every rank tells every other one that it has come, and waits for all.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rondo/error.hpp>

#include "comm/team/team.hpp"
#include "comm/team/waiter.hpp"
#include "comm/transport/memory.hpp"
#include "tests/comm/simulated/world.hpp"

namespace rondo::comm::test {

inline constexpr milliseconds kDeadline{10'000};

class Job {
 public:
  Job(World& world, std::vector<int> node_of_rank, milliseconds longest_delay, milliseconds monitor_lag);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  struct Part {  // what a rank does, and what became of it
    int calls = 6;
    int odd_call = 0;       // the one, counted from 1, of another type than that of the others; 0: none
    int late_call = 0;      // before which it computes for longer than the others wait
    int leaves_after = -1;  // so many calls, though others have more; -1: it does not
    int aborts_after = -1;
    milliseconds computes{0};  // before each call, at most
    milliseconds lingers{0};   // with the communicator, after its end or a failure
    int done = 0;              // calls
    std::optional<Error> error{};
    Time ended_at{};
  };
  Part& part(int rank) { return ranks_[static_cast<std::size_t>(rank)]->part; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int nodes() const;
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  void start();

  void kill(int rank, bool loses_what_is_under_way);
  // The same right behind so many bytes of what it says to ranks of other nodes.
  void kill_after(int number, long bytes) { rank(number).bytes_left = bytes; }
  void cut(int node, bool is_cut);
  void stop(int rank, bool is_stopped);
  bool ended(int rank) { return world_.process(rank).ended(); }
  bool killed(int rank) { return world_.process(rank).killed(); }

 private:
  struct Node {
    Mapping memory{};
    Segment segment{};
    std::shared_ptr<std::vector<Fd>> bells{};
    int ranks = 0;
    bool is_cut = false;
    Time cut_at{};
  };
  struct Step {  // of a collective, from one rank to another
    Signature signature{};
    bool end = false;  // of the connection
  };
  struct Control {       // with one peer
    Fd socket;           // the far end of the team's
    Time last{};         // when the last of what it has said comes there
    bool ended = false;  // what the peer says
  };
  struct Socket {  // of a team
    int descriptor, peer;
    bool carries_steps;
  };
  struct Rank {
    int number;
    Part part{};
    std::unique_ptr<Team> team{};
    std::vector<std::deque<Step>> came{};            // by peer
    std::vector<Time> last_sent{};                   // by peer: when the last step comes there
    std::vector<std::optional<Control>> controls{};  // by peer
    std::vector<Socket> sockets{};
    std::vector<Fd> steps{};  // by peer: what stands for a connection of collectives
    Fd process{};             // readable once it has ended
    std::uint64_t past = 0;
    long bytes_left = -1;
    Time dropped_at = Time::max();  // what had not come by then, does not
  };
  Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
  bool apart(int a, int b) const { return node_of(a) != node_of(b); }
  bool reaches(int a, int b) const;
  void make_nodes();
  void connect(int a, int b);
  Team::Parts parts_of(int number);
  std::optional<System::Silence> silence(int number, int socket);
  void live(Rank& self);
  void go_through(Rank& self);
  void call(Rank& self, int which);
  bool take(Rank& self, const Signature& mine, int peer);
  template <class Body>
  void guarded(Rank& self, Body body);
  void send(Rank& self, int peer, const Step& step);
  void arrive(int from, int to, const Step& step);
  void carry_words(int number);  // of one process to all
  void carry(int from, int to, std::string bytes, bool end);
  void deliver(int from, int to, const std::string& bytes, bool end);
  void end_connections(int number);
  Time arrival(Time& last);

  World& world_;
  const std::vector<int> node_of_;
  const milliseconds longest_delay_, monitor_lag_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::function<void()>> held_back_;  // by a network that is cut
};

}  // namespace rondo::comm::test
