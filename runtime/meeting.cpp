// SPDX-License-Identifier: Apache-2.0
#include "runtime/meeting.hpp"

#include <fmt/format.h>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"
#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "rendezvous/interfaces.hpp"
#include "rendezvous/listen.hpp"
#include "rendezvous/server.hpp"
#include "rendezvous/socket.hpp"
#include "runtime/meeting_file.hpp"
#include "runtime/neighbours.hpp"

namespace rondo::runtime {
namespace {

using rendezvous::addresses_of;
using rendezvous::Client;
using rendezvous::Endpoint;
using rendezvous::is_local;
using rendezvous::JoinRequest;
using rendezvous::Membership;
using rendezvous::Secret;
using rendezvous::Server;

// The store of a communicator whose process serves: the server goes after the client that uses it.
struct Served {
  std::unique_ptr<Server> server;
  std::shared_ptr<Client> client;
};

std::shared_ptr<Store> store_of(std::unique_ptr<Server> server, std::shared_ptr<Client> client) {
  if (!server) return client;
  auto served = std::make_shared<Served>(Served{std::move(server), std::move(client)});
  return {served, served->client.get()};
}

std::string chosen_interface(const Options& options) {
  return options.interface.empty() ? env("RONDO_INTERFACE").value_or("") : options.interface;
}

void read_port_range(Bootstrap& bootstrap) {
  const auto text = env("RONDO_PORT_RANGE");
  if (!text) return;
  int first = 0, last = 0, end = 0;
  const bool read = std::sscanf(text->c_str(), "%5d-%5d%n", &first, &last, &end) == 2;
  if (!read || end != static_cast<int>(text->size()) || first < 1 || first > last || last > 65535) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("RONDO_PORT_RANGE={} is not first-last with ports from 1 to 65535", *text));
  }
  bootstrap.first_port = static_cast<std::uint16_t>(first);
  bootstrap.last_port = static_cast<std::uint16_t>(last);
}

// Where peers reach this rank. Who reached the server by this machine's own name came over loopback, others will not.
std::vector<std::string> addresses_for_peers(const Client& client, const std::string& server_host,
                                             const Options& options) {
  const std::string interface = chosen_interface(options);
  if (!interface.empty()) return addresses_of(interface);
  if (rendezvous::is_own_name(server_host)) {
    auto addresses = rendezvous::network_addresses();
    if (!addresses.empty()) return addresses;
  }
  return {client.local_address()};
}

Bootstrap join(const std::shared_ptr<Client>& client, std::unique_ptr<Server> server,
               const std::optional<Secret>& secret, const std::string& host, const std::string& job,
               const JoinRequest& request, const Options& options, Store::Deadline deadline) {
  Bootstrap bootstrap;
  bootstrap.addresses = addresses_for_peers(*client, host, options);
  read_port_range(bootstrap);
  const Membership membership = client->join(request, deadline);
  bootstrap.rank = membership.rank;
  bootstrap.world_size = membership.world_size;
  bootstrap.generation = membership.generation;
  if (secret) {
    bootstrap.authenticator =
        rendezvous::make_authenticator(*secret, fmt::format("peers|{}|{}", job, membership.generation));
  }
  bootstrap.store = store_of(std::move(server), client);
  return bootstrap;
}

std::unique_ptr<Server> serve(const std::vector<std::string>& hosts, std::uint16_t port,
                              const std::optional<Secret>& secret, const std::string& job, int world_size) {
  return std::make_unique<Server>(
      rendezvous::ServerOptions{.bind = hosts, .port = port, .secret = secret, .job = job, .world_size = world_size});
}

std::vector<std::string> addresses_to_serve(const std::string& host, const Options& options) {
  std::vector<std::string> addresses{host};
  const std::string interface = chosen_interface(options);
  if (interface.empty()) return addresses;
  for (const std::string& address : addresses_of(interface)) addresses.push_back(address);
  return addresses;
}

// Nobody has given us anything to trust one another by, so this works among the processes of one user on one machine.
Bootstrap meet_neighbours(const Place& place, const JoinRequest& request, const Options& options,
                          Store::Deadline deadline) {
  const std::string endpoint = rendezvous::endpoint_text(place.host, place.port);
  if (request.rank < 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ranks that meet at {} without RONDO_SECRET_FILE must be given their numbers", endpoint));
  }
  if (!is_local(place.host)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rank {} is to meet rank 0 at {}, which is another machine: set RONDO_SECRET_FILE to a file "
                    "(mode 0600) with the same 64 hexadecimal digits on every machine, or RONDO_INSECURE=1 to "
                    "trust the network",
                    request.rank, endpoint));
  }
  const std::string meeting = fmt::format("{}|{}|{}", endpoint, place.job, request.generation);
  if (request.rank > 0) {
    const Introduction rank0 = ask_host(meeting, deadline);
    const auto client = Client::connect({rank0.host, rank0.port, rank0.secret, place.job}, deadline);
    return join(client, nullptr, rank0.secret, rank0.host, place.job, request, options, deadline);
  }
  const Secret secret = Secret::generate();
  const std::string loopback = "127.0.0.1";
  auto server = serve({loopback}, 0, secret, place.job, request.world_size);
  const std::uint16_t port = server->port();
  const Host host(meeting, {loopback, port, secret}, deadline);
  const auto client = Client::connect({loopback, port, secret, place.job}, deadline);
  return join(client, std::move(server), secret, loopback, place.job, request, options, deadline);
}

}  // namespace

Trust read_trust(int secret_fd) {
  if (secret_fd >= 0) return {Secret::from_fd(secret_fd)};
  if (const auto path = env("RONDO_SECRET_FILE")) return {Secret::from_file(*path)};
  const bool insecure = env_number("RONDO_INSECURE", 0, 1).value_or(0) == 1;
  if (insecure) log::warn("RONDO_INSECURE=1: whoever reaches this job's ports may join it");
  return {std::nullopt, insecure};
}

Bootstrap meet_at(const Place& place, const Trust& trust, const JoinRequest& request, const Options& options,
                  Store::Deadline deadline) {
  if (!trust.given()) return meet_neighbours(place, request, options, deadline);
  std::unique_ptr<Server> server;
  if (place.may_serve && request.rank == 0 && is_local(place.host)) {
    try {
      server = serve(addresses_to_serve(place.host, options), place.port, trust.secret, place.job, request.world_size);
    } catch (const rendezvous::AddressInUse& error) {
      log::info("rank 0 joins whoever serves already: {}", error.what());
    }
  }
  const auto client = Client::connect({place.host, place.port, trust.secret, place.job}, deadline);
  return join(client, std::move(server), trust.secret, place.host, place.job, request, options, deadline);
}

Bootstrap meet_by_file(const std::string& path, const JoinRequest& request, const Options& options,
                       Store::Deadline deadline) {
  if (request.rank < 0) {
    throw Error(ErrorCode::invalid_argument, "ranks that meet by a file must be given their numbers");
  }
  const std::string job = "file";
  if (request.rank > 0) {
    const FileMeeting found = connect_by_file(path, deadline);
    return join(found.client, nullptr, found.secret, found.host, job, request, options, deadline);
  }
  const std::string interface = chosen_interface(options);
  const std::string host = interface.empty() ? "127.0.0.1" : addresses_of(interface).front();
  const Secret secret = Secret::generate();
  auto server = serve({host}, 0, secret, job, request.world_size);
  const Endpoint endpoint{host, server->port(), secret, job};
  const MeetingFile file(path, endpoint);
  const auto client = Client::connect(endpoint, deadline);
  return join(client, std::move(server), secret, host, job, request, options, deadline);
}

Bootstrap meet(const Launch& launch, const Options& options, Store::Deadline deadline) {
  const Trust trust = read_trust(launch.secret_fd);
  const JoinRequest request{
      .rank = launch.rank,
      .world_size = launch.world_size,
      .local_rank = launch.local_rank,
      .node = options.node,
      .master_address = launch.master_address,
      .master_port = launch.master_port,
      .generation = launch.generation,
      .instance = fmt::format("{}.{}", process_identity(), launch.rank),
  };
  if (!launch.server_host.empty()) {
    if (!trust.given()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} gave rank {} a server but no secret: RONDO_SECRET_FD, RONDO_SECRET_FILE or "
                              "RONDO_INSECURE=1 must come with RONDO_RENDEZVOUS",
                              launch.launcher, launch.rank));
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
