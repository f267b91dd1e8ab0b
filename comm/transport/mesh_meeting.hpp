// SPDX-License-Identifier: Apache-2.0
// One run of Mesh::connect: who is still missing, which attempts are under way. Caller's thread; owns every socket
// until it hands them out.
#pragma once
#include <array>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport/connection.hpp"
#include "comm/transport/mesh.hpp"

namespace rondo {

struct MeshParty {
  int rank = -1;
  bool wants_data = true, wants_messages = false, wants_pulses = false;
  Advertisement advertisement;
  std::array<Fd, 6> sockets{};  // by MeetingChannel, like
  std::array<std::unique_ptr<SecureStream>, 6> streams{};
  std::vector<std::string> outcomes{};  // per advertised address, what the last attempt came to
};

class MeshMeeting final : private Guard, private AcceptHandler {
 public:
  MeshMeeting(const Membership& membership, int rank, const MeetingId& id, std::vector<MeshParty> parties,
              std::chrono::milliseconds handshake_limit);
  std::vector<MeshPeer> run(Listeners listeners, Store::Deadline deadline, const Lookout& lookout);

 private:
  struct Race;
  void start(Awaitable<void> task);
  // The connecting side: one dial per lower rank and channel, one attempt per address.
  Awaitable<void> dial(MeshParty& party, MeetingChannel channel);
  Awaitable<bool> dial_once(MeshParty& party, MeetingChannel channel);
  Awaitable<void> attempt(std::shared_ptr<Race> race, MeshParty& party, MeetingChannel channel, std::size_t index);
  Awaitable<std::string> reach(std::shared_ptr<Race> race, MeshParty& party, MeetingChannel channel, std::size_t index);
  Awaitable<bool> settle(MeshParty& party, MeetingChannel channel, SharedSocket socket, Greeted greeted);
  // The accepting side.
  void accepted(Fd socket) override;
  bool expects(const Encounter& encounter) const override;
  Awaitable<void> receive(SharedSocket socket);
  Awaitable<void> welcome(MeshParty& party, MeetingChannel channel, SharedSocket socket,
                          std::vector<std::byte> transcript);
  Awaitable<std::unique_ptr<SecureStream>> secure_if_asked(SharedSocket socket, MeetingChannel channel,
                                                           Encryption::End end, std::vector<std::byte> transcript);
  void tell_dropped(const std::string& why);

  Fd& slot(MeshParty& party, MeetingChannel channel) { return party.sockets[static_cast<std::size_t>(channel)]; }
  std::unique_ptr<SecureStream>& stream(MeshParty& party, MeetingChannel channel) {
    return party.streams[static_cast<std::size_t>(channel)];
  }
  MeshParty* find(std::uint32_t rank);
  void enter(MeshParty& party, MeetingChannel channel, Fd socket, std::unique_ptr<SecureStream> stream);
  [[noreturn]] void throw_missing() const;
  std::string describe(const MeshParty& party) const;

  const Membership& membership_;
  const int rank_;
  const MeetingId id_;
  const std::chrono::milliseconds handshake_limit_;
  std::vector<MeshParty> parties_;
  std::vector<std::string> own_addresses_;
  std::size_t missing_;  // sockets
  std::exception_ptr failure_;
  asio::io_context io_{1};  // destroys what is under way before what that refers to,
  Unexamined unexamined_;   // and after the sockets that belong to it
};

}  // namespace rondo
