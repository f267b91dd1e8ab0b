// SPDX-License-Identifier: Apache-2.0
// The launchers of a job's nodes among themselves: the one verdict of all of them, which is the first failure anywhere
// or the success of all, and what follows from it: the end, going on without the rank that failed, or another start.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rendezvous/socket.hpp"
#include "runtime/process/event_loop.hpp"
#include "tools/rondorun/meeting.hpp"
#include "tools/rondorun/node_words.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/ranks.hpp"

namespace rondo::launcher {

// Handlers run on the event loop. Threads wait here, as the store blocks: the listener for the other nodes and then for
// the verdict, the speaker with what this node has to say, and a watch for the loss of others. What they wait for may
// never come, so an object of this class lives until the process exits.
class Nodes {
 public:
  struct Handlers {
    std::function<void(const std::string&)> waiting;  // now and then, for whom, until all nodes are there
    std::function<void(Placement)> joined;            // all nodes are there, each time
    std::function<void(const Failure&)> verdict;      // exit code 0: every rank of every node succeeded
    std::function<void(Decision)> decision;           // after each other verdict
    std::function<void(const std::string&)> lost;     // another launcher or the rendezvous is gone, or never came
    std::function<void(const Closed&)> closed;        // the job is over, without this node
    std::function<void()> left;                       // after leave()
  };

  Nodes(process::EventLoop& loop, const Options& options, std::optional<rendezvous::Secret> secret, Handlers handlers);
  // Turn: how many verdicts there were in this start, after which survivors went on.
  void report(int turn, const Failure& failure);  // of this node; the first report of all nodes becomes the verdict
  // Survivors go on once the job misses the rank that failed; ends: or never, and all may start again instead.
  void judge(int turn, const Failure& failure, bool told_to_end, bool ends);
  void ended(int turn, const Failure& failure);       // every rank of this node; judges when those of all nodes have
  void ended_well(int rank, const std::string& who);  // while others of this node run
  void ask_whether_missed(std::vector<int> ranks, std::function<void()> missed);  // all of them: in the event loop
  void finished(int turn);               // every rank of this node succeeded, or is missed
  void depart(const std::string& why);   // of a job of MIN:MAX nodes; node 0 stays
  void abandon() { abandoned_ = true; }  // before the ranks are killed as this launcher was: no failure of theirs
  void start_again();                    // after such a decision, when all ranks of this node have ended
  std::chrono::milliseconds longest_grace() const { return at_.longest_grace; }  // of all nodes
  void leave(bool good);  // all is said and done here; node 0 waits for the others, as it serves them

 private:
  void listen();
  void await_own_ranks();
  int follow_start(const Placement& at, int restarts);
  void watch_launchers(const Placement& at, const std::vector<std::string>& launchers);
  bool has_left(int start, int node);
  void end_watch(const Placement& at);
  void watch_arrivals(const Placement& at);
  Decision interrupt(int start, const std::string& verdict, Decision decision);
  void speak(const std::stop_token& stop);
  void remind();
  void say(std::function<void()> words);
  void set_met(bool met);
  std::string what_failed(const std::exception& error, bool meeting, const std::vector<std::string>& launchers) const;
  bool was_said(int start, const std::string& sentence);
  std::string await(int start, std::string_view answer);
  bool give(int start, std::string_view answer, const std::string& text);
  void decide(const Placement& at, int turn, const Failure& failure, bool may_go_on, bool ends);
  Decision after_failure(const Placement& at, int turn, const Failure& failure);

  process::EventLoop& loop_;
  const Options& options_;
  Handlers handlers_;
  Meeting meeting_;
  Placement at_;  // of this start; the event loop's

  std::mutex mutex_;
  std::condition_variable_any something_to_say_, ranks_ended_;
  std::deque<std::function<void()>> to_say_;  // guarded by mutex_, like
  bool met_ = false;                          // all nodes are there
  int starts_wanted_ = 0;                     // by start_again()
  std::atomic<bool> abandoned_{false};
  std::vector<std::jthread> watches_;  // one or two of each start; the listener's
  std::jthread listener_, speaker_;
};

using rendezvous::endpoint_text;

}  // namespace rondo::launcher
