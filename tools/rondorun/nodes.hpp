// SPDX-License-Identifier: Apache-2.0
// The launchers of a job's nodes among themselves: who is which node, how many ranks each has, and the one verdict all
// of them end with, which is the first failure anywhere or the success of all.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "rendezvous/client.hpp"
#include "rendezvous/server.hpp"
#include "rendezvous/socket.hpp"
#include "runtime/process/event_loop.hpp"
#include "tools/rondorun/environment.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/ranks.hpp"

namespace rondo::launcher {

// Handlers run on the event loop. Two threads wait here, as the store blocks: the listener for the other nodes and
// then for the verdict, the speaker with what this node has to say. What the listener waits for may never come, so an
// object of this class lives until the process exits.
class Nodes {
 public:
  struct Handlers {
    std::function<void(const std::string&)> waiting;  // now and then, for whom, until all nodes are there
    std::function<void(Placement)> joined;            // all nodes are there
    std::function<void(const Failure&)> verdict;      // exit code 0: every rank of every node succeeded
    std::function<void(bool goes_on)> decision;       // after each other verdict: whether the other ranks go on
    std::function<void(const std::string&)> lost;     // another launcher or the rendezvous is gone, or never came
    std::function<void()> left;                       // after leave()
  };

  Nodes(process::EventLoop& loop, const Options& options, std::optional<rendezvous::Secret> secret, Handlers handlers);
  // Turn: how many verdicts there were before, after which survivors went on.
  void report(int turn, const Failure& failure);      // of this node; the first report of all nodes becomes the verdict
  void judge(int turn, int failed_rank, bool ends);   // they go on once the job misses that rank; ends: or never
  void ended(int turn, int failed_rank);              // every rank of this node; judges when those of all nodes have
  void ended_well(int rank, const std::string& who);  // while others of this node run
  void finished(int turn);                            // every rank of this node succeeded, or is missed
  void leave();  // all is said and done here; node 0 waits for the others, as it serves them

 private:
  void listen();
  void speak(const std::stop_token& stop);
  void say(std::function<void()> words);
  void meet();
  void compare_jobs();
  void take_place();
  Placement exchange_placements();
  void say_who_is_missing(const std::stop_token& stop);
  std::string missing_sentence();
  std::string launcher_of(int node) const;
  std::string what_failed(const std::exception& error, bool meeting) const;
  std::string await(const std::string& answer);
  void give(const std::string& answer, const std::string& text);
  void decide(int turn, int failed_rank, bool ends);
  Store::Deadline join_deadline() const;

  process::EventLoop& loop_;
  const Options& options_;
  std::optional<rendezvous::Secret> secret_;
  Fd secret_fd_;  // for the ranks
  Handlers handlers_;
  int node_;
  std::unique_ptr<rendezvous::Server> server_;  // at node 0
  std::shared_ptr<rendezvous::Client> client_;  // set before anything is said
  std::vector<std::string> launchers_;          // of the nodes, once they are there; the listener's

  std::mutex mutex_;
  std::condition_variable_any something_to_say_;
  std::deque<std::function<void()>> to_say_;  // guarded by mutex_, like
  bool connected_ = false, met_ = false;      // client_ is set; all nodes are there
  std::jthread listener_, speaker_;
};

using rendezvous::endpoint_text;

}  // namespace rondo::launcher
