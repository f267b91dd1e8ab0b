// SPDX-License-Identifier: Apache-2.0
// The control connections to ranks of other nodes: failures, what a waiting rank is in, and goodbyes. Sent by any
// thread without blocking, read by the monitor's thread.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/error.hpp>

#include "comm/base/fd.hpp"
#include "comm/base/system.hpp"
#include "comm/call/signature.hpp"
#include "comm/setup/encryption.hpp"
#include "comm/team/culprits.hpp"
#include "comm/team/monitor.hpp"

namespace rondo::comm {

class Control {
 public:
  struct Events {  // on the monitor's thread
    std::function<void(int peer, ErrorCode code, const Culprits& culprits, std::string_view sentence)> failed;
    std::function<void(int peer, const Signature& signature, std::uint64_t alone_after)> waiting;
    // The last collective that it was in, and whether it gave the communicator up.
    std::function<void(int peer, const Signature& latest, bool gave_up)> departed;
    std::function<void(int peer)> unmapped;
    std::function<void(int peer, std::uint64_t entered, std::uint64_t verdict)> attends;
    std::function<void(int peer, std::uint64_t split)> apart;
    std::function<void(int peer, std::uint64_t question, const Signature& about)> asked;
    // What was asked about `whom`, by the peer itself or by a neighbour of its.
    std::function<void(int peer, std::uint64_t question, int whom, const Signature& at, std::uint64_t flags)> answered;
    std::function<void(int peer, std::uint64_t mark)> aborted;    // a communicator of its process; as RankLine's
    std::function<void(int peer, std::string_view reason)> lost;  // end of stream without a goodbye
  };

  Control(std::shared_ptr<Monitor> monitor, Events events) : monitor_(std::move(monitor)), events_(std::move(events)) {}
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // stream: over the socket, where connections are encrypted.
  void add(int peer, Fd socket, std::unique_ptr<SecureStream> stream = nullptr);
  int socket(int peer) const;  // open as long as this lives
  void start();                // after the last add()
  void stop();                 // after this no event comes
  void hear(int peer);         // the events of all that has come from it, in this thread

  void announce_failure(ErrorCode code, const Culprits& culprits, std::string_view sentence);
  // alone_after: 0, or what each peer is told, see Team::note_alone.
  void announce_waiting(const Signature& signature, const std::function<std::uint64_t(int peer)>& alone_after = {});
  void tell(int peer, const Signature& signature);  // the same to one of them
  void announce_departure(const Signature& latest, bool gave_up = false);
  void announce_unmapped();
  void announce_attendance(std::uint64_t entered, std::uint64_t verdict);
  void announce_apart(std::uint64_t split);
  void announce_abort(std::uint64_t mark);
  void ask(std::uint64_t question, const Signature& about);  // all of them
  void answer(int peer, std::uint64_t question, int whom, const Signature& at, std::uint64_t flags);

 private:
  enum class Kind : std::uint32_t {
    failure = 1,
    waiting = 2,
    departure = 3,
    unmapped = 4,
    attendance = 5,
    question = 6,
    answer = 7,
    apart = 8,
    abort = 9
  };
  struct Message {
    Kind kind{};
    std::int32_t code = 0;
    std::int32_t whom = -1;                  // that an answer is about
    std::uint32_t length = 0;                // of sentence
    std::uint64_t entered = 0, verdict = 0;  // of attendance; entered: of a split, an abort or a wait, too
    std::uint64_t question = 0, flags = 0;   // of questions and answers; flags: of a departure, 1 if it gave up
    Signature signature{};
    Culprits culprits{};
    std::array<char, 500> sentence{};
  };
  struct Peer {
    int rank;
    Fd socket;
    std::unique_ptr<SecureStream> stream;  // guarded by sending_; may be null
    int watch = 0;
    std::size_t got = 0;
    Message incoming{};
    bool departed = false;
  };
  void send_all(const Message& message);
  void send_to(int peer, const Message& message);
  static void send(Peer& peer, const Message& message);
  long receive(Peer& peer, std::span<std::byte> into);
  void lose(const Peer& peer, long result);
  bool readable(Peer& peer);  // false: done with it
  void deliver(Peer& peer);

  std::shared_ptr<Monitor> monitor_;
  Events events_;
  std::mutex sending_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace rondo::comm
