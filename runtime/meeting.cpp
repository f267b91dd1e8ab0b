// SPDX-License-Identifier: Apache-2.0
#include "runtime/meeting.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"
#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "comm/setup/encryption_choice.hpp"
#include "rendezvous/interfaces.hpp"
#include "rendezvous/listen.hpp"
#include "rendezvous/server.hpp"
#include "rendezvous/socket.hpp"
#include "rendezvous/tls_socket.hpp"
#include "runtime/meeting_file.hpp"
#include "runtime/neighbours.hpp"
#include "runtime/place_store.hpp"
#include "runtime/port_holder.hpp"

namespace rondo::runtime {
namespace {

using rendezvous::addresses_of;
using rendezvous::Client;
using rendezvous::Endpoint;
using rendezvous::is_local;
using rendezvous::JoinRequest;
using rendezvous::Secret;
using rendezvous::Server;
using rendezvous::who_meets;

// A point that outlives what it is made of.
using MakePoint = std::function<std::unique_ptr<MeetingPoint>()>;

// One object.
struct Place {
  std::shared_ptr<Store> store;
  std::shared_ptr<Recruiter> recruiter;
};

Place place_of(Met met, const MakePoint& make_point, JoinRequest request,
               const std::shared_ptr<MeetingAgain>& meeting_again) {
  if (!met.membership.of_rank_0) return {met.client, met.client};
  const rendezvous::Membership& given = met.membership;
  const bool joined_later = !given.growth.name.empty();
  request.rank = joined_later ? given.growth.job_ranks.at(static_cast<std::size_t>(given.rank)) : given.rank;
  request.world_size = joined_later ? given.job_world_size : given.world_size;
  request.generation = given.generation;
  request.again = true;
  const auto secret = met.endpoint.secret;
  const auto place = std::make_shared<PlaceStore>(std::move(met), [=](Store::Deadline deadline) {
    const auto point = make_point();
    point->keep_secret(secret);
    return meet_at_point(*point, request, deadline, [meeting_again] { meeting_again->look_out(); });
  });
  return {place, place};
}

std::string chosen_interface(const Options& options) {
  return options.interface.empty() ? env("RONDO_INTERFACE").value_or("") : options.interface;
}

// What this rank was told of connections with its peers; read before anybody is met.
struct Choices {
  std::vector<std::string> addresses;  // none: found out
  std::uint16_t first_port = 0, last_port = 0;
  bool encrypted = encryption_is_wanted();  // also where survivors meet again
};

std::optional<std::uint16_t> port_in(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool whole = status == std::errc() && end == text.data() + text.size() && port > 0;
  return whole ? std::optional(port) : std::nullopt;
}

Choices read_choices(const Options& options) {
  Choices choices;
  const std::string interface = chosen_interface(options);
  if (!interface.empty()) choices.addresses = addresses_of(interface);
  const auto text = env("RONDO_PORT_RANGE");
  if (!text) return choices;
  const auto dash = std::min(text->find('-'), text->size() - 1);
  const auto first = port_in(std::string_view(*text).substr(0, dash)),
             last = port_in(std::string_view(*text).substr(dash + 1));
  if (!first || !last || *first > *last) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("RONDO_PORT_RANGE={} is not first-last with ports from 1 to 65535", *text));
  }
  choices.first_port = *first;
  choices.last_port = *last;
  return choices;
}

// Where peers reach this rank. Who reached the server by this machine's own name came over loopback, others will not.
std::vector<std::string> addresses_for_peers(const Client& client, const std::string& server_host,
                                             const Choices& choices) {
  if (!choices.addresses.empty()) return choices.addresses;
  if (rendezvous::is_own_name(server_host)) {
    auto addresses = rendezvous::network_addresses();
    if (!addresses.empty()) return addresses;
  }
  return {client.local_address()};
}

// `server_host`: by what name the server was reached.
Bootstrap bootstrap_of(Met met, const std::string& server_host, const Choices& choices, const MakePoint& make_point,
                       const JoinRequest& request) {
  Bootstrap bootstrap;
  bootstrap.addresses = addresses_for_peers(*met.client, server_host, choices);
  bootstrap.first_port = choices.first_port;
  bootstrap.last_port = choices.last_port;
  bootstrap.rank = met.membership.rank;
  bootstrap.world_size = met.membership.world_size;
  bootstrap.generation = met.membership.generation;
  if (met.endpoint.secret) {
    bootstrap.authenticator = rendezvous::make_authenticator(
        *met.endpoint.secret, fmt::format("peers|{}|{}", met.endpoint.job, met.membership.generation));
  }
  if (met.endpoint.encrypted) {
    bootstrap.encryption = rendezvous::make_encryption(
        *met.endpoint.secret, fmt::format("peers|{}|{}", met.endpoint.job, met.membership.generation));
  }
  bootstrap.growth = met.membership.growth;
  if (met.membership.of_rank_0) bootstrap.meeting_again = std::make_shared<MeetingAgain>(met.membership.world_size);
  Place place = place_of(std::move(met), make_point, request, bootstrap.meeting_again);
  bootstrap.store = std::move(place.store);
  bootstrap.recruiter = std::move(place.recruiter);
  return bootstrap;
}

// tcp://host:port with something to trust one another by.
class TcpPoint final : public MeetingPoint {
 public:
  TcpPoint(const MeetingAddress& place, const Trust& trust, const Choices& choices)
      : place_(place),
        endpoint_{place.host, place.port, trust.secret, place.job, choices.encrypted},
        choices_(choices) {}
  std::string key() const override { return fmt::format("tcp|{}|{}", describe(), place_.job); }
  std::shared_ptr<Hosting> try_host(int world_size) override {
    if (!place_.may_serve || !is_local(place_.host)) return nullptr;
    auto hosting = std::make_shared<Hosting>(Hosting{.endpoint = endpoint_});
    std::vector<std::string> addresses = choices_.addresses;
    addresses.insert(addresses.begin(), place_.host);
    try {
      hosting->server = std::make_unique<Server>(rendezvous::ServerOptions{.bind = std::move(addresses),
                                                                           .port = place_.port,
                                                                           .secret = endpoint_.secret,
                                                                           .encrypted = endpoint_.encrypted,
                                                                           .job = place_.job,
                                                                           .world_size = world_size,
                                                                           .is_rank_0s = true,
                                                                           .starter = parent_identity()});
    } catch (const rendezvous::AddressInUse& error) {
      log::info("rank 0 joins whoever serves already: {}", error.what());
      return nullptr;
    }
    return hosting;
  }
  std::optional<Endpoint> find(std::string&, Store::Deadline) override { return endpoint_; }
  bool may_be_stale() const override { return false; }
  std::string holder() const override {
    const std::string who = is_local(place_.host) ? holder_of_port(place_.port) : "";
    return who.empty() ? "" : fmt::format("; {} listens there: end it, or choose another port", who);
  }
  std::string describe() const override { return rendezvous::endpoint_text(place_.host, place_.port); }

 private:
  const MeetingAddress place_;
  const Endpoint endpoint_;
  const Choices choices_;
};

// Nobody has given us anything to trust one another by, so this works among the processes of one user on one machine.
Bootstrap meet_neighbours(const MeetingAddress& place, const JoinRequest& request, const Options& options,
                          Store::Deadline deadline) {
  const std::string endpoint = rendezvous::endpoint_text(place.host, place.port);
  if (request.rank < 0 && !request.enlists) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ranks that meet at {} without RONDO_SECRET_FILE must be given their numbers", endpoint));
  }
  if (!is_local(place.host)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is to meet rank 0 at {}, which is another machine: set RONDO_SECRET_FILE to a file "
                            "(mode 0600) with the same 64 hexadecimal digits on every machine, or RONDO_INSECURE=1 to "
                            "trust the network",
                            who_meets(request), endpoint));
  }
  const Choices choices = read_choices(options);
  const MakePoint make_point = [meeting = fmt::format("{}|{}|{}", endpoint, place.job, request.generation),
                                job = place.job, encrypted = choices.encrypted] {
    return std::make_unique<NeighbourPoint>(meeting, job, encrypted);
  };
  Met met = meet_at_point(*make_point(), request, deadline);
  const std::string host = met.endpoint.host;
  return bootstrap_of(std::move(met), host, choices, make_point, request);
}

// What stands between a launcher and its ranks often closes what it does not know, and may open something else there.
// The programs that this one starts are no ranks and do not get the secret; this process may join again, and so may a
// child that it forks, so the descriptor stays open and its variable set.
std::optional<Secret> inherited_secret(int fd, bool has_file) {
  try {
    Secret secret = Secret::from_fd(fd);
    if (const int flags = ::fcntl(fd, F_GETFD); flags >= 0) ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    return secret;
  } catch (const Error& error) {
    const std::string sentence = fmt::format("RONDO_SECRET_FD={}: {}", fd, error.what());
    if (has_file) {
      log::info("{}; RONDO_SECRET_FILE is used instead", sentence);
      return std::nullopt;
    }
    throw Error(error.error_code(),
                fmt::format("{}; a program between the launcher and this one has closed the descriptor: let it pass {} "
                            "on (Python: subprocess with pass_fds=[{}] or close_fds=False; sudo: -C {}), or start the "
                            "job with rondorun --secret-file, whose path ranks get too",
                            sentence, fd, fd, fd + 1));
  }
}

Secret secret_of_file(const std::string& path) {
  try {
    return Secret::from_file(path);
  } catch (const Error& error) {
    throw Error(error.error_code(), fmt::format("RONDO_SECRET_FILE: {}", error.what()));
  }
}

JoinRequest request_of(const Launch& launch, const Options& options) {
  JoinRequest request{
      .rank = launch.rank,
      .world_size = launch.world_size,
      .local_rank = launch.local_rank,
      .node = options.node,
      .master_address = launch.master_address,
      .master_port = launch.master_port,
      .generation = launch.generation,
      .enlists = launch.joins_later,
      .calls_itself = launch.calls_itself,
  };
  if (!request.enlists) request.instance = fmt::format("{}.{}", process_identity(), launch.rank);
  return request;
}

}  // namespace

Trust read_trust(int secret_fd) {
  const auto path = env("RONDO_SECRET_FILE");
  if (secret_fd >= 0) {
    if (auto secret = inherited_secret(secret_fd, path.has_value())) return {std::move(secret)};
  }
  if (path) return {secret_of_file(*path)};
  const bool insecure = env_number("RONDO_INSECURE", 0, 1).value_or(0) == 1;
  if (insecure) log::warn("RONDO_INSECURE=1: whoever reaches this job's ports may join it");
  return {std::nullopt, insecure};
}

Bootstrap meet_at(const MeetingAddress& place, const Trust& trust, const JoinRequest& request, const Options& options,
                  Store::Deadline deadline) {
  if (!trust.given()) return meet_neighbours(place, request, options, deadline);
  const Choices choices = read_choices(options);
  const MakePoint make_point = [place, trust, choices] { return std::make_unique<TcpPoint>(place, trust, choices); };
  return bootstrap_of(meet_at_point(*make_point(), request, deadline), place.host, choices, make_point, request);
}

Bootstrap meet_by_file(const std::string& path, const JoinRequest& request, const Options& options,
                       Store::Deadline deadline) {
  if (request.rank < 0 && !request.enlists) {
    throw Error(ErrorCode::invalid_argument, "ranks that meet by a file must be given their numbers");
  }
  const Choices choices = read_choices(options);
  const std::string host = choices.addresses.empty() ? "127.0.0.1" : choices.addresses.front();
  const MakePoint make_point = [path, host, job = env("RONDO_JOB").value_or("file"), encrypted = choices.encrypted] {
    return std::make_unique<FilePoint>(path, host, job, encrypted);
  };
  const auto point = make_point();
  try {
    return bootstrap_of(meet_at_point(*point, request, deadline), host, choices, make_point, request);
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::mismatch) throw;
    throw Error(error.error_code(), fmt::format("at {}: {}", point->describe(), error.what()), error.culprit());
  }
}

Bootstrap meet(const Launch& launch, const Options& options, Store::Deadline deadline) {
  const Trust trust = read_trust(launch.secret_fd);
  const JoinRequest request = request_of(launch, options);
  if (!launch.server_host.empty()) {
    if (!trust.given()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} gave {} a server but no secret: RONDO_SECRET_FD, RONDO_SECRET_FILE or "
                              "RONDO_INSECURE=1 must come with RONDO_RENDEZVOUS",
                              launch.launcher, who_meets(request)));
    }
    return meet_at({launch.server_host, launch.server_port, launch.job, false}, trust, request, options, deadline);
  }
  if (!trust.given() && launch.nodes > 1) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} started this job on {} nodes: set RONDO_SECRET_FILE to a file (mode 0600) with the same "
                    "64 hexadecimal digits on every node, or RONDO_INSECURE=1 to trust the network",
                    launch.launcher, launch.nodes));
  }
  if (launch.master_port_taken && launch.master_port == 65535) {
    throw Error(ErrorCode::invalid_argument, "MASTER_PORT=65535 leaves no port above it for the rendezvous");
  }
  const auto port = static_cast<std::uint16_t>(launch.master_port + (launch.master_port_taken ? 1 : 0));
  return meet_at({launch.master_address, port, launch.job}, trust, request, options, deadline);
}

std::string next_world_name(Store& store, std::uint32_t generation, int rank) {
  const auto turn = store.add(fmt::format("rondo/worlds/{}/{}", generation, rank), 1);
  return turn == 1 ? "world" : fmt::format("world.{}", turn);
}

}  // namespace rondo::runtime
