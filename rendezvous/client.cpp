// SPDX-License-Identifier: Apache-2.0
// How a connection comes about, and each verb as a message.
#include "rendezvous/client.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include <rondo/error.hpp>

#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "rendezvous/client_impl.hpp"
#include "rendezvous/socket.hpp"

namespace rondo::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kQuietFor{2};  // then one line says what is in the way
constexpr std::chrono::milliseconds kFirstPause{5}, kLongestPause{500};

std::string to_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
Store::Bytes to_bytes(const std::string& text) {
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

void check_sizes(std::string_view key, std::size_t value_bytes) {
  if (key.empty() || key.size() > kMaxNameBytes) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a key or name has 1 to {} bytes, '{}' has {}", kMaxNameBytes, key, key.size()));
  }
  if (value_bytes > kMaxValueBytes) {
    throw Error(ErrorCode::invalid_argument, fmt::format("the value of '{}' has {} bytes, the rendezvous carries {} at "
                                                         "most",
                                                         key, value_bytes, kMaxValueBytes));
  }
}

}  // namespace

std::unique_ptr<ClientSession> authenticate(int fd, const Endpoint& endpoint, Deadline deadline, std::string& reason) {
  auto session = std::make_unique<ClientSession>(endpoint.secret, endpoint.job, endpoint.encrypted);
  std::string to_send = session->hello();
  std::vector<ClientSession::Answer> answers;
  std::byte buffer[2048];
  for (;;) {
    while (!to_send.empty()) {  // a few hundred bytes into an empty socket
      const ssize_t put = ::send(fd, to_send.data(), to_send.size(), MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        reason = fmt::format("the connection broke during the handshake: {}", std::strerror(errno));
        return nullptr;
      }
      to_send.erase(0, static_cast<std::size_t>(put));
    }
    if (session->ready()) return session;
    pollfd waiting{fd, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, poll_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t got = ready > 0 ? ::recv(fd, buffer, sizeof buffer, 0) : 0;
    if (got <= 0) {
      reason = ready == 0 ? "it accepts connections but says nothing; is it a rondo rendezvous server?"
               : got == 0 ? "it closed the connection during the handshake; is it a rondo rendezvous server?"
                          : std::strerror(errno);
      return nullptr;
    }
    try {
      session->received({buffer, static_cast<std::size_t>(got)}, to_send, answers);
    } catch (const Error& error) {
      if (!session->busy()) throw;
      reason = error.what();
      return nullptr;
    }
  }
}

std::shared_ptr<Client> Client::connect(const Endpoint& endpoint, Deadline deadline) {
  const std::string server = endpoint_text(endpoint.host, endpoint.port);
  std::string reason = "no attempt was possible before the deadline";
  auto pause = kFirstPause;
  Deadline quiet_until = Clock::now() + kQuietFor;
  do {
    Fd fd = try_connect(endpoint.host, endpoint.port, deadline, reason);
    if (fd) set_tcp_options(fd.get(), endpoint.link_patience);
    try {
      auto session = fd ? authenticate(fd.get(), endpoint, deadline, reason) : nullptr;
      if (session) {
        return std::shared_ptr<Client>(new Client(std::make_unique<Impl>(std::move(fd), std::move(session), endpoint)));
      }
    } catch (const Error& error) {
      throw Error(error.error_code(),
                  fmt::format("the rendezvous server at {} cannot be joined: {}", server, error.what()),
                  error.culprit());
    }
    if (Clock::now() > quiet_until) {
      log::warn("still trying to reach the rendezvous server at {}: {}", server, reason);
      quiet_until = Deadline::max();
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - Clock::now()));
    pause = std::min(2 * pause, kLongestPause);
  } while (Clock::now() < deadline);
  throw Error(ErrorCode::timeout,
              fmt::format("cannot reach the rendezvous server at {} by the deadline: {}; see whether rank 0 or the "
                          "launcher there runs and the address is right",
                          server, reason));
}

namespace {
Growth growth_of(const proto::Membership& given) {
  return {.name = given.growth(),
          .generation = given.growth_generation(),
          .job_ranks = {given.job_ranks().begin(), given.job_ranks().end()}};
}
}  // namespace

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;
std::string Client::local_address() const { return impl_->local_address(); }

std::string who_meets(const JoinRequest& request) {
  return request.enlists ? "a joining process" : fmt::format("rank {}", request.rank);
}

Membership Client::join(const JoinRequest& request, Deadline deadline) {
  proto::Request message;
  proto::Join& join = *message.mutable_join();
  join.set_rank(request.rank);
  join.set_world_size(request.world_size);
  join.set_local_rank(request.local_rank);
  join.set_node(request.node.empty() ? node_identity() : request.node);
  join.set_host(request.host.empty() ? host_name() : request.host);
  join.set_pid(static_cast<std::uint32_t>(request.pid > 0 ? request.pid : ::getpid()));
  join.set_master_address(request.master_address);
  join.set_master_port(request.master_port);
  join.set_generation(request.generation);
  join.set_again(request.again);
  join.set_lease_ms(static_cast<std::uint32_t>(request.lease.count()));
  join.set_instance(request.instance.empty() ? impl_->instance() : request.instance);
  if (request.lease.count() > 0) impl_->keep_lease(request.lease);
  join.set_enlists(request.enlists);
  if (request.enlists) {
    join.set_release(request.release.empty() ? RONDO_VERSION : request.release);
    join.set_calls_itself(request.calls_itself);
  }
  proto::Join own = join;
  const proto::Reply reply = impl_->call(std::move(message), deadline);
  const proto::Membership& given = reply.membership();
  if (!given.of_rank_0() && !given.server().empty()) impl_->is_member(std::move(own), given);
  return {.rank = static_cast<int>(given.rank()),
          .world_size = static_cast<int>(given.world_size()),
          .local_rank = static_cast<int>(given.local_rank()),
          .local_size = static_cast<int>(given.local_size()),
          .node = static_cast<int>(given.node()),
          .nodes = static_cast<int>(given.nodes()),
          .master_address = given.master_address(),
          .master_port = static_cast<std::uint16_t>(given.master_port()),
          .generation = given.generation(),
          .of_rank_0 = given.of_rank_0(),
          .growth = growth_of(given),
          .job_world_size = static_cast<int>(given.job_world_size())};
}

void Client::set(std::string_view key, std::span<const std::byte> value) {
  check_sizes(key, value.size());
  proto::Request request;
  request.mutable_set()->set_key(std::string(key));
  request.mutable_set()->set_value(to_text(value));
  impl_->call(std::move(request));
}

Store::Bytes Client::get(std::string_view key, Deadline deadline) {
  check_sizes(key, 0);
  proto::Request request;
  request.mutable_get()->set_key(std::string(key));
  return to_bytes(impl_->call(std::move(request), deadline).value());
}

std::optional<Store::Bytes> Client::try_get(std::string_view key) {
  check_sizes(key, 0);
  proto::Request request;
  request.mutable_try_get()->set_key(std::string(key));
  const proto::Reply reply = impl_->call(std::move(request));
  return reply.found() ? std::optional(to_bytes(reply.value())) : std::nullopt;
}

std::int64_t Client::add(std::string_view key, std::int64_t amount) {
  check_sizes(key, 0);
  proto::Request request;
  request.mutable_add()->set_key(std::string(key));
  request.mutable_add()->set_amount(amount);
  return impl_->call(std::move(request)).sum();
}

bool Client::compare_and_set(std::string_view key, std::optional<Bytes> expected, std::span<const std::byte> desired) {
  check_sizes(key, desired.size());
  check_sizes(key, expected ? expected->size() : 0);
  proto::Request request;
  proto::CompareAndSet& message = *request.mutable_compare_and_set();
  message.set_key(std::string(key));
  message.set_expect_absent(!expected.has_value());
  if (expected) message.set_expected(to_text(*expected));
  message.set_desired(to_text(desired));
  return impl_->call(std::move(request)).found();
}

bool Client::erase(std::string_view key) {
  check_sizes(key, 0);
  proto::Request request;
  request.mutable_erase()->set_key(std::string(key));
  return impl_->call(std::move(request)).found();
}

namespace {
void fill_gather(proto::Gather& gather, std::string_view name, int index, int participants) {
  if (index < 0 || index >= participants) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' cannot have participant {} of {}", name, index, participants));
  }
  gather.set_name(std::string(name));
  gather.set_index(static_cast<std::uint32_t>(index));
  gather.set_participants(static_cast<std::uint32_t>(participants));
}
}  // namespace

std::vector<Store::Bytes> Client::exchange(std::string_view name, int index, int participants,
                                           std::span<const std::byte> value, Deadline deadline) {
  check_sizes(name, value.size());
  proto::Request request;
  fill_gather(*request.mutable_exchange(), name, index, participants);
  request.mutable_exchange()->set_value(to_text(value));
  const proto::Reply reply = impl_->call(std::move(request), deadline);
  std::vector<Bytes> values;
  values.reserve(static_cast<std::size_t>(reply.values_size()));
  for (const std::string& each : reply.values()) values.push_back(to_bytes(each));
  return values;
}

void Client::barrier(std::string_view name, int index, int participants, Deadline deadline) {
  check_sizes(name, 0);
  proto::Request request;
  fill_gather(*request.mutable_barrier(), name, index, participants);
  impl_->call(std::move(request), deadline);
}

void Client::tell_of(const Client& before, Deadline deadline) {
  for (proto::Told& told : impl_->inherit(*before.impl_)) {
    proto::Request request;
    *request.mutable_told() = std::move(told);
    impl_->call(std::move(request), deadline);
  }
}

std::vector<int> Client::survivors(std::string_view name, int index, std::span<const int> members, Deadline deadline) {
  return survivors(name, index, members, {}, deadline).ranks;
}

Survived Client::survivors(std::string_view name, int index, std::span<const int> members, const Doubt& doubt,
                           Deadline deadline) {
  check_sizes(name, 0);
  proto::Request request;
  proto::Survive& message = *request.mutable_survivors();
  message.set_name(std::string(name));
  message.set_index(static_cast<std::uint32_t>(index));
  for (const int member : members) message.add_members(static_cast<std::uint32_t>(member));
  message.set_growth(doubt.growth);
  message.set_instead(doubt.instead);
  message.set_smaller(static_cast<std::uint32_t>(doubt.members));
  const proto::Reply reply = impl_->call(std::move(request), deadline);
  return {.ranks = {reply.survivors().begin(), reply.survivors().end()},
          .in_smaller = !doubt.instead.empty() && reply.gave_up() == doubt.growth};
}

void Client::missing(std::string_view name, std::span<const int> indices) {
  check_sizes(name, 0);
  proto::Request request;
  request.mutable_missing()->set_name(std::string(name));
  for (const int index : indices) request.mutable_missing()->add_indices(static_cast<std::uint32_t>(index));
  impl_->call(std::move(request));
}

void Client::missing(const Growth& growth, std::span<const int> members) {
  proto::Request request;
  request.mutable_missing()->set_name(growth.key());
  request.mutable_missing()->set_growth(true);
  for (const int member : members) request.mutable_missing()->add_indices(static_cast<std::uint32_t>(member));
  impl_->call(std::move(request));
}

Growth Client::admit(std::span<const int> members, int joiners, std::uint32_t generation, Deadline deadline) {
  proto::Request request;
  proto::Admit& message = *request.mutable_admit();
  for (const int member : members) message.add_members(static_cast<std::uint32_t>(member));
  message.set_joiners(static_cast<std::uint32_t>(joiners));
  message.set_generation(generation);
  message.set_release(RONDO_VERSION);
  return growth_of(impl_->call(std::move(request), deadline).membership());
}

void Client::check(const Growth& growth) {
  proto::Request request;
  request.mutable_growth()->set_key(growth.key());
  impl_->call(std::move(request));
}

void Client::check_first_ranks() {
  proto::Request request;
  request.mutable_loss();
  impl_->call(std::move(request));
}

void Client::give_up(const Growth& growth, const Error& why) noexcept {
  try {
    proto::Request request;
    request.mutable_give_up()->set_growth(growth.key());
    fill(*request.mutable_give_up()->mutable_why(), why);
    impl_->call(std::move(request));
  } catch (const std::exception& error) {  // the server sees it when this process goes
    log::debug("rendezvous client: cannot give up {}: {}", growth.key(), error.what());
  }
}

}  // namespace rondo::rendezvous
