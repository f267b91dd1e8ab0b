// SPDX-License-Identifier: Apache-2.0
// The two sides of NodeMeeting::meet. After the handshake the leader sends the descriptors, the follower one byte
// when it holds them all, the leader its verdict to everybody. Caller's thread; each side owns its sockets until it
// hands them out.
#pragma once
#include <array>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "comm/transport/connection.hpp"
#include "comm/transport/node_frame.hpp"
#include "comm/transport/node_meeting.hpp"

namespace rondo {

class NodeLeader final : private Guard, private AcceptHandler {
 public:
  NodeLeader(const Membership& membership, std::span<const int> ranks, std::span<const MeetingId> ids);
  NodeDescriptors run(Fd listener, std::size_t segment_bytes, Store::Deadline deadline, const Lookout& lookout);

 private:
  struct Follower {
    int rank = -1;
    MeetingId id{};
    SharedSocket socket{};
    bool served = false;  // has said that it holds every descriptor
  };
  void start(Awaitable<void> task);
  void accepted(Fd socket) override;
  bool expects(const Encounter& encounter) const override;
  Awaitable<void> receive(SharedSocket socket);
  Awaitable<void> serve(Follower& follower);
  NodeFrame verdict() const;

  const Membership& membership_;
  const int rank_;
  const MeetingId id_;
  NodeDescriptors made_;
  std::vector<int> descriptors_;  // of made_, in the order in which they are sent
  std::size_t absent_;            // followers not served
  std::optional<int> lost_;
  std::exception_ptr failure_;
  asio::io_context io_{1};  // destroys what is under way before what that refers to,
  Unexamined unexamined_;   // and after the sockets that belong to it
  std::vector<Follower> followers_;
};

class NodeFollower {
 public:
  NodeFollower(const Membership& membership, const Encounter& encounter, std::size_t local_ranks)
      : membership_(membership), encounter_(encounter), expected_(1 + kDoorbellsPerRank * local_ranks) {}
  NodeDescriptors run(Store::Deadline deadline, const Lookout& lookout);

 private:
  Awaitable<void> join();
  Awaitable<void> connect();
  Awaitable<void> listen_to_leader();
  [[noreturn]] void throw_leader(ErrorCode code, const std::string& what) const;

  const Membership& membership_;
  const Encounter encounter_;
  const std::size_t expected_;  // descriptors
  std::vector<Fd> received_;
  std::optional<NodeFrame> verdict_;
  std::exception_ptr failure_;
  asio::io_context io_{1};
  SharedSocket socket_;  // after io_: goes first
};

}  // namespace rondo
