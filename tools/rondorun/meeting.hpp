// SPDX-License-Identifier: Apache-2.0
// Where the launchers of a job's nodes meet: node 0 serves, and before each start of the ranks they agree who is which
// node and how many ranks each has. A world of MIN:MAX nodes may have others at each start, whom node 0 chooses.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/fd.hpp"
#include "rendezvous/client.hpp"
#include "rendezvous/server.hpp"
#include "tools/rondorun/agreement.hpp"
#include "tools/rondorun/environment.hpp"
#include "tools/rondorun/node_words.hpp"
#include "tools/rondorun/options.hpp"

namespace rondo::launcher {

// How launchers store text.
std::string key_of(int start, std::string_view what);
std::span<const std::byte> bytes_of(const std::string& text);
std::string text_of(const Store::Bytes& bytes);

// The job is over, and this launcher was not, or is no longer, one of it.
struct Closed {
  std::string sentence;
  int exit_code = 1;
};

class Meeting {
 public:
  Meeting(const Options& options, std::optional<rendezvous::Secret> secret);

  // All of these throw Error. The first: whoever is node 0 serves, and all compare their jobs.
  void connect();
  // The next start, with as many restarts before it. Waits for the nodes. Throws Closed, too.
  Placement gather(int restarts);
  // That node was lost since that start: nobody waits for it at the next one. Of any thread.
  void lose(int start, int node);
  bool has_lost(int start) const { return lost_since_ == start; }
  // That node was at the last start, and will not be at that one. Of any thread.
  void stay_away(int start, int node) const;
  void await_newcomer(int start) const;  // for ever
  // Where node 0 can see that this launcher lives, as long as it does. Of a thread of its own.
  void stand_by() const;
  // Told of launchers that node 0 waits for and finds gone, which were lost beside another one.
  void when_gone(std::function<void(int node, const std::string& launcher)> told) { when_gone_ = std::move(told); }
  // Of a job of MIN:MAX nodes at node 0, for who comes later.
  void close(int start, const Closed& how);

  rendezvous::Client& store() const { return *client_; }
  bool serves() const { return server_ != nullptr; }
  bool is_connected() const { return connected_; }
  int start() const { return start_; }                                      // that is gathered, or was last
  const std::vector<std::string>& launchers() const { return launchers_; }  // of the nodes, at the last start
  std::string missing_sentence() const;                                     // whom gather() waits for; of any thread

 private:
  using Clock = std::chrono::steady_clock;
  struct Numbered {
    int number = 0;  // in the order in which they came
    Arrival arrival{};
  };
  bool try_to_serve();
  std::shared_ptr<rendezvous::Client> reach_server(Store::Deadline deadline) const;
  void compare_jobs();
  void take_place();
  std::string begun() const;
  Placement gather_all(int restarts);
  Placement gather_those_who_come(int restarts);
  int come_to(int start) const;
  void choose(int start, int restarts);
  std::vector<Numbered> await_arrivals(int start);
  void look_for_one(int start, const std::set<int>& awaited);
  bool stands_by(const std::string& launcher) const;
  Placement exchange_placements(int node, int nodes, Store::Deadline deadline);
  void forget_missed(int world_size);
  Store::Deadline join_deadline() const { return Clock::now() + options_.join_timeout; }

  const Options& options_;
  std::optional<rendezvous::Secret> secret_;
  Fd secret_fd_;   // for the ranks
  int node_;       // -1: not known yet, or anyone
  int nodes_ = 0;  // at the last start; 0: there was none
  std::atomic<int> start_{0}, lost_since_{-1};
  std::atomic<bool> connected_{false};
  std::unique_ptr<rendezvous::Server> server_;  // at node 0
  std::shared_ptr<rendezvous::Client> client_;
  std::vector<std::string> launchers_;
  std::map<int, int> not_seen_;  // by node of the last start: how often in a row
  int looked_for_ = 0;           // the latest of them
  std::function<void(int, const std::string&)> when_gone_;
};

}  // namespace rondo::launcher
