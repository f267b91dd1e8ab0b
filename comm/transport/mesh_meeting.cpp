// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mesh_meeting.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <rondo/error.hpp>

#include "comm/base/log.hpp"
#include "comm/base/pulse.hpp"
#include "comm/transport/sockets.hpp"

namespace rondo {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kNextAddressAfter{250};
constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{500};
constexpr std::size_t kMaxNamed = 8;  // ranks described one by one in an error
constexpr std::string_view kProven = "proven";
constexpr std::array<std::byte, 1> kWelcome{std::byte{'W'}};

// Whether the other end is known to be gone; nothing is consumed.
bool is_dead(const Fd& socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

bool send_now(int socket, std::span<const std::byte> bytes) {
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

bool wants(const MeshParty& party, MeetingChannel channel) {
  switch (channel) {
    case MeetingChannel::control:
      return true;
    case MeetingChannel::data:
      return party.wants_data;
    case MeetingChannel::messages:
      return party.wants_messages;
    case MeetingChannel::pulse:
    case MeetingChannel::other_pulse:
      return party.wants_pulses;
    case MeetingChannel::node:
      return false;
  }
  return false;
}
bool carries_data(MeetingChannel channel) {
  return channel == MeetingChannel::data || channel == MeetingChannel::messages;
}
constexpr std::array kChannels{MeetingChannel::data, MeetingChannel::messages, MeetingChannel::control,
                               MeetingChannel::pulse, MeetingChannel::other_pulse};

std::size_t wanted_sockets(const std::vector<MeshParty>& parties) {
  std::size_t wanted = 0;
  for (const MeshParty& party : parties) {
    for (const MeetingChannel channel : kChannels) wanted += wants(party, channel) ? 1 : 0;
  }
  return wanted;
}

bool is_complete(const MeshParty& party) {
  return std::ranges::all_of(kChannels, [&](MeetingChannel channel) {
    return party.sockets[static_cast<std::size_t>(channel)] || !wants(party, channel);
  });
}

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : between) + part;
  return all;
}

}  // namespace

// Attempts at the addresses of one party; the first to be challenged properly wins, the others are closed.
struct MeshMeeting::Race {
  explicit Race(asio::io_context& io) : bell(io) {}
  asio::steady_timer bell;  // cancelled when something happened
  std::vector<SharedSocket> sockets;
  std::size_t failed = 0;
  SharedSocket winner;
  std::size_t winner_index = 0;
  Greeted greeted{};

  void close_losers() {
    boost::system::error_code ignored;  // a socket that cannot be closed is closed already
    for (const SharedSocket& socket : sockets) {
      if (socket != winner) socket->close(ignored);
    }
  }
};

MeshMeeting::MeshMeeting(const Membership& membership, int rank, const MeetingId& id, std::vector<MeshParty> parties,
                         milliseconds handshake_limit)
    : membership_(membership),
      rank_(rank),
      id_(id),
      handshake_limit_(handshake_limit),
      parties_(std::move(parties)),
      missing_(wanted_sockets(parties_)),
      unexamined_(missing_) {
  for (MeshParty& party : parties_) party.outcomes.resize(party.advertisement.addresses.size());
}

std::vector<MeshPeer> MeshMeeting::run(Listeners listeners, Store::Deadline deadline, const Lookout& lookout) {
  for (const SocketAddress& address : listeners.addresses) own_addresses_.push_back(to_string(address));
  for (Fd& listener : listeners.sockets) start(accept_all(io_, std::move(listener), *this, unexamined_));
  for (MeshParty& party : parties_) {
    if (party.rank > rank_) continue;
    for (const MeetingChannel channel : kChannels) {
      if (wants(party, channel)) start(dial(party, channel));
    }
  }
  if (missing_ > 0) run_until(io_, deadline, lookout);
  if (failure_) std::rethrow_exception(failure_);
  if (missing_ > 0) throw_missing();
  std::vector<MeshPeer> peers;
  for (MeshParty& party : parties_) {
    peers.push_back(
        {party.rank,
         std::move(slot(party, MeetingChannel::data)),
         std::move(slot(party, MeetingChannel::messages)),
         std::move(slot(party, MeetingChannel::control)),
         {std::move(slot(party, MeetingChannel::pulse)), std::move(slot(party, MeetingChannel::other_pulse))},
         std::move(stream(party, MeetingChannel::data)),
         std::move(stream(party, MeetingChannel::messages)),
         std::move(stream(party, MeetingChannel::control))});
  }
  return peers;
}

void MeshMeeting::start(Awaitable<void> task) {
  asio::co_spawn(io_, std::move(task), [this](std::exception_ptr failure) {
    if (!failure) return;
    failure_ = failure;
    io_.stop();
  });
}

void MeshMeeting::enter(MeshParty& party, MeetingChannel channel, Fd socket, std::unique_ptr<SecureStream> secured) {
  if (carries_data(channel)) {
    set_data_options(socket);
  } else {
    set_control_options(socket);
  }
  if (channel == MeetingChannel::pulse) Pulse::prepare(socket.get());
  Fd& place = slot(party, channel);
  if (!place) --missing_;
  stream(party, channel) = std::move(secured);  // before the socket of the last one
  place = std::move(socket);
  if (missing_ == 0) io_.stop();
}

Awaitable<void> MeshMeeting::dial(MeshParty& party, MeetingChannel channel) {
  milliseconds wait = kFirstPause;
  while (true) {
    const bool connected = co_await dial_once(party, channel);
    if (connected) co_return;
    co_await pause(io_, wait);
    wait = std::min(2 * wait, kLongestPause);
  }
}

// One round through the addresses: the next one 250 ms after the last or as soon as that failed; then as long as any
// of them is still open, since a peer that is late answers late.
Awaitable<bool> MeshMeeting::dial_once(MeshParty& party, MeetingChannel channel) {
  auto race = std::make_shared<Race>(io_);
  const std::size_t addresses = party.advertisement.addresses.size();
  std::size_t started = 0;
  while (!race->winner && race->failed < addresses) {
    const bool next = started < addresses;
    if (next) start(attempt(race, party, channel, started++));
    if (next) {
      race->bell.expires_after(kNextAddressAfter);
    } else {
      race->bell.expires_at(std::chrono::steady_clock::time_point::max());
    }
    boost::system::error_code woken;
    co_await race->bell.async_wait(asio::redirect_error(asio::use_awaitable, woken));
  }
  race->close_losers();
  if (!race->winner) co_return false;
  const bool welcome = co_await settle(party, channel, race->winner, std::move(race->greeted));
  if (!welcome) {
    party.outcomes[race->winner_index] = "it did not accept this rank; is one of that number there already?";
  }
  co_return welcome;
}

Awaitable<void> MeshMeeting::attempt(std::shared_ptr<Race> race, MeshParty& party, MeetingChannel channel,
                                     std::size_t index) {
  std::string& outcome = party.outcomes[index];
  outcome = "no answer";
  try {
    outcome = co_await reach(race, party, channel, index);
  } catch (const boost::system::system_error& error) {
    outcome = error.code() == asio::error::eof ? "it closed the connection; is it of this job, with the same secret?"
                                               : error.code().message();
  }
  if (outcome != kProven) ++race->failed;
  race->bell.cancel();
}

// Connects to one address and greets; what came of it.
Awaitable<std::string> MeshMeeting::reach(std::shared_ptr<Race> race, MeshParty& party, MeetingChannel channel,
                                          std::size_t index) {
  const SocketAddress& address = party.advertisement.addresses[index];
  Fd fd = make_socket(address.family());
  if (carries_data(channel)) prepare_for_data(fd);
  set_control_options(fd);  // while shaking hands
  SharedSocket socket = adopt(io_, std::move(fd), address.family());
  race->sockets.push_back(socket);
  const asio::generic::stream_protocol::endpoint endpoint(address.get(), address.bytes);
  co_await socket->async_connect(endpoint, asio::use_awaitable);

  const Encounter encounter{static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(party.rank), channel, id_,
                            party.advertisement.id};
  auto greeting = std::make_shared<const Greeting>(membership_, encounter);
  auto greeted = co_await greet(socket, greeting);
  if (!greeted) co_return "it could not prove that it belongs to this job";
  if (race->winner) co_return "not needed";
  race->winner = socket;
  race->greeted = std::move(*greeted);
  race->winner_index = index;
  co_return std::string(kProven);
}

Awaitable<bool> MeshMeeting::settle(MeshParty& party, MeetingChannel channel, SharedSocket socket, Greeted greeted) {
  try {
    co_await asio::async_write(*socket, asio::buffer(greeted.proof), asio::use_awaitable);
    std::array<std::byte, 1> welcome{};
    co_await asio::async_read(*socket, asio::buffer(welcome), asio::use_awaitable);
    if (welcome != kWelcome) co_return false;
    auto secured =
        co_await secure_if_asked(socket, channel, Encryption::End::connecting, std::move(greeted.transcript));
    enter(party, channel, release(*socket), std::move(secured));
    co_return true;
  } catch (const boost::system::system_error& error) {
    log::debug("rank {}: a peer left in the middle of the handshake: {}", rank_, error.code().message());
  }
  co_return false;
}

void MeshMeeting::accepted(Fd socket) {
  sockaddr_storage local{};
  socklen_t bytes = sizeof(local);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &bytes);
  const SharedSocket adopted = adopt(io_, std::move(socket), local.ss_family);
  unexamined_.enter(adopted);
  start(receive(adopted));
}

MeshParty* MeshMeeting::find(std::uint32_t rank) {
  const auto found = std::ranges::find(parties_, static_cast<int>(rank), &MeshParty::rank);
  return found == parties_.end() ? nullptr : &*found;
}

bool MeshMeeting::expects(const Encounter& encounter) const {
  const auto found = std::ranges::find(parties_, static_cast<int>(encounter.from), &MeshParty::rank);
  return found != parties_.end() && found->rank > rank_ && encounter.to == static_cast<std::uint32_t>(rank_) &&
         wants(*found, encounter.channel) && encounter.to_id == id_ && encounter.from_id == found->advertisement.id;
}

Awaitable<void> MeshMeeting::receive(SharedSocket socket) {
  const TimeLimit limit(io_, socket, handshake_limit_);
  try {
    std::optional<Examined> examined = co_await examine(socket, membership_, *this, unexamined_);
    MeshParty* const party = examined ? find(examined->encounter.from) : nullptr;
    if (party != nullptr) {
      co_await welcome(*party, examined->encounter.channel, socket, std::move(examined->transcript));
    } else {
      tell_dropped("it is not from a peer of '" + membership_.name + "'");
    }
  } catch (const boost::system::system_error& error) {
    tell_dropped("its handshake broke off: " + error.code().message());
  }
  unexamined_.leave(socket);
}

Awaitable<void> MeshMeeting::welcome(MeshParty& party, MeetingChannel channel, SharedSocket socket,
                                     std::vector<std::byte> transcript) {
  // A second one is either a duplicate or the peer's new try after its first broke unseen.
  const auto wanted = [&] { return !slot(party, channel) || is_dead(slot(party, channel)); };
  if (!wanted() || !send_now(socket->native_handle(), kWelcome)) co_return;
  auto secured = co_await secure_if_asked(socket, channel, Encryption::End::accepting, std::move(transcript));
  if (wanted()) enter(party, channel, release(*socket), std::move(secured));
}

// Nothing more is said on a pulse.
Awaitable<std::unique_ptr<SecureStream>> MeshMeeting::secure_if_asked(SharedSocket socket, MeetingChannel channel,
                                                                      Encryption::End end,
                                                                      std::vector<std::byte> transcript) {
  if (!membership_.encryption || channel == MeetingChannel::pulse || channel == MeetingChannel::other_pulse)
    co_return nullptr;
  co_return co_await secure(socket, *membership_.encryption, end, std::move(transcript));
}

void MeshMeeting::tell_dropped(const std::string& why) {
  int others = 0;
  if (unexamined_.may_tell(others)) log::info("rank {}: dropped a connection{}: {}", rank_, and_others(others), why);
}

std::string MeshMeeting::describe(const MeshParty& party) const {
  if (party.rank > rank_) {
    return fmt::format("rank {} (never completed a connection to {})", party.rank, joined(own_addresses_, ", "));
  }
  std::vector<std::string> tried;
  for (std::size_t i = 0; i < party.outcomes.size(); ++i) {
    const std::string& outcome = party.outcomes[i];
    tried.push_back(
        fmt::format("{}: {}", to_string(party.advertisement.addresses[i]), outcome.empty() ? "not tried" : outcome));
  }
  return fmt::format("rank {} (tried {})", party.rank, joined(tried, ", "));
}

void MeshMeeting::throw_missing() const {
  std::vector<std::string> named;
  std::size_t absent = 0;
  int culprit = -1;
  for (const MeshParty& party : parties_) {
    if (is_complete(party)) continue;
    if (absent++ == 0 || party.rank < culprit) culprit = party.rank;
    if (named.size() < kMaxNamed) named.push_back(describe(party));
  }
  if (absent > named.size()) named.push_back(fmt::format("{} more", absent - named.size()));
  throw Error(ErrorCode::timeout,
              fmt::format("rank {} of '{}' waited in vain for {} of {} peers: {}; do they run, and does the network "
                          "let them reach each other?",
                          rank_, membership_.name, absent, parties_.size(), joined(named, "; ")),
              culprit);
}

}  // namespace rondo
