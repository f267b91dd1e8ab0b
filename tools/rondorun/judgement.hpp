// SPDX-License-Identifier: Apache-2.0
// Which failure counts, whether the other ranks go on without the one that failed or are told to end, and when the job
// is over: by this launcher alone, or together with those of the other nodes. Runs on the event loop alone.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/process/event_loop.hpp"
#include "runtime/process/respite.hpp"
#include "tools/rondorun/alone.hpp"
#include "tools/rondorun/failure_folder.hpp"
#include "tools/rondorun/nodes.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/ranks.hpp"
#include "tools/rondorun/voice.hpp"

namespace rondo::launcher {

// What a launcher has started.
struct Job {
  std::unique_ptr<Alone> alone{};  // with one node
  std::unique_ptr<Nodes> nodes{};  // with several
  std::unique_ptr<FailureFolder> folder{};
  std::unique_ptr<Ranks> ranks{};           // once all nodes are there
  std::function<void(int rank)> replace{};  // the others go on without it: another may take its place
  int end_signal = 0;                       // that the launcher was told to end with
};

// Of this node's ranks. It goes forward alone, except that a restart begins again, and survivors may go on.
enum class Phase {
  meeting,    // there are no ranks yet
  running,    //
  stopping,   // something failed: they may settle, then they are told to end, then they are killed
  ended,      // the other nodes' may still run
  finishing,  // what the ranks wrote is still on its way
  abandoned,  // our caller is gone and kills what is left
};

class Judgement {
 public:
  Judgement(process::EventLoop& loop, const Options& options, Job& job, Voice& voice);

  Phase phase() const { return phase_; }
  void enter(Phase next);  // each is entered once; the last two stop the loop

  void on_failure(const Failure& failure);  // of a rank of this node
  void on_verdict(const Failure& verdict);  // as Nodes says, like
  void on_decision(Decision decision);
  void on_lost(const std::string& sentence);
  void on_closed(const Closed& closed);
  void on_signal_before_start(int signal);

  // A rank of this node has ended, and others may be stopped that nobody goes on with.
  void look_for_left_behind();
  // All ranks of this node have ended: first settle(), then start_again() if that may be, or on_ranks_ended().
  void settle();
  bool may_start_again() const;    // with one node
  bool nodes_start_again() const;  // with several: so they have decided, and all ranks of this one have ended
  void start_again();              // forgets the failure; the ranks are still there
  void on_ranks_ended();

  std::optional<int> exit_code() const;  // none: nothing failed

 private:
  enum class Verdict { awaited, known, final, lost };  // of all nodes; lost: the rendezvous is

  // From the start of the ranks, or since survivors went on.
  struct Turn {
    Verdict verdict = Verdict::awaited;
    std::optional<Failure> failure{};              // the first, as far as is known
    std::vector<Failure> others{};                 // of this node since then
    bool settled = false;                          // no other failure may take its place
    bool window_over = false;                      // kSettle has passed since the failure
    bool again = false;                            // all of them will be started again, on several nodes
    std::optional<std::size_t> lines_when_said{};  // of all output, when the failure was said
  };

  void settle_failure();
  void look_at_ranks();
  void leave_folder();
  void say_failure();
  void say_failure_again();
  void say_success();
  int turn_of_start() const { return respite_.turn() - first_turn_; }
  void judge();
  bool is_missed(int rank);
  void go_on();
  void on_node_done();
  void stop_within_grace();
  void tell_to_end();
  void signal(int signal);
  void ask_for_left_behind(std::vector<int> ranks);
  void end_left_behind();
  void end_unneeded();

  process::EventLoop& loop_;
  const Options& options_;
  Job& job_;
  Voice& voice_;
  Phase phase_ = Phase::meeting;
  Turn turn_;
  process::Respite respite_;
  int first_turn_ = 0;                // of it, when the ranks were started
  std::vector<Failure> left_behind_;  // without whom survivors went on
  bool said_finished_ = false;        // to the other nodes
  bool ends_left_behind_ = false;     // stopped ranks have been told to
};

}  // namespace rondo::launcher
