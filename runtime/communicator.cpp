// SPDX-License-Identifier: Apache-2.0
// The ways into a world that need the rendezvous, and to its store. The rest of Communicator is comm's.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <new>

#include <rondo/rondo.hpp>

#include "comm/base/duration.hpp"
#include "comm/base/limits.hpp"
#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "comm/setup/bootstrap.hpp"
#include "comm/setup/encryption_choice.hpp"
#include "comm/setup/local_store.hpp"
#include "rendezvous/crypto.hpp"
#include "runtime/borrowed_store.hpp"
#include "runtime/meeting.hpp"
#include "runtime/place_store.hpp"

namespace rondo {
namespace {

// join_timeout bounds both halves: meeting, and connecting to the peers.
Communicator make(Bootstrap bootstrap, const Options& options, Store::Deadline deadline) {
  bootstrap.name = runtime::next_world_name(*bootstrap.store, bootstrap.generation, bootstrap.rank);
  bootstrap.deadline = deadline;
  const std::shared_ptr<Store> store = bootstrap.store;
  try {
    return make_communicator(std::move(bootstrap), options);
  } catch (...) {
    if (const auto* place = dynamic_cast<const runtime::PlaceStore*>(store.get())) place->let_others_hear();
    throw;
  }
}

Bootstrap world_of_one() {
  Bootstrap bootstrap;
  bootstrap.store = std::make_shared<LocalStore>();
  return bootstrap;
}

void check_place(const Rendezvous& given) {
  if (given.world_size > kMostRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a world of {} ranks: it takes {} at most", given.world_size, kMostRanks));
  }
  if (given.world_size >= 1 && given.rank < given.world_size && given.rank >= -1) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("rank {} of a world of {} cannot be: create() needs a world "
                                                       "size of at least 1 and a rank below it",
                                                       given.rank, given.world_size));
}

// The store is trusted, so rank 0's secret may travel through it.
Communicator create_over(const Rendezvous& given, const Options& options, Store::Deadline deadline) {
  if (given.rank < 0) {
    throw Error(ErrorCode::invalid_argument, "with a store of your own, create() needs this rank's number");
  }
  if (encryption_is_wanted()) {
    throw Error(ErrorCode::unsupported,
                "RONDO_ENCRYPT=1 does not go with a store of your own: the key would go through it, and what else it "
                "carries is its own affair; let the ranks meet by env://, tcp:// or file://, or unset RONDO_ENCRYPT");
  }
  const auto store = std::make_shared<runtime::BorrowedStore>(*given.store);
  Bootstrap bootstrap;
  bootstrap.rank = given.rank;
  bootstrap.world_size = given.world_size;
  bootstrap.store = store;
  bootstrap.name = runtime::next_world_name(*store, 0, given.rank);
  const std::string key = fmt::format("rondo/secret/{}", bootstrap.name);
  if (given.rank == 0) store->set(key, rendezvous::as_bytes(rendezvous::Secret::generate().to_hex()));
  const Store::Bytes digits = store->get(key, deadline);
  const auto secret = rendezvous::Secret::from_hex({reinterpret_cast<const char*>(digits.data()), digits.size()});
  bootstrap.authenticator = rendezvous::make_authenticator(secret, "peers|" + bootstrap.name);
  bootstrap.deadline = deadline;
  Communicator made = make_communicator(std::move(bootstrap), options);
  store->give_back();
  return made;
}

// What the C++ library and Asio throw becomes an Error: their words, and what the system limits.
template <class Make>
auto with_errors_of_ours(const char* what, Make make) {
  try {
    return make();
  } catch (const Error&) {
    throw;
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::system, fmt::format("cannot {}: {}{}", what, error.what(), remedy_of(error.code().value())));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::system, fmt::format("cannot {}: {}{}", what, std::strerror(ENOMEM), remedy_of(ENOMEM)));
  }
}

rendezvous::JoinRequest request_of(const Rendezvous& given, const Options& options) {
  rendezvous::JoinRequest request{.rank = given.rank, .world_size = given.world_size, .node = options.node};
  if (given.rank >= 0) request.instance = fmt::format("{}.{}", process_identity(), given.rank);
  return request;
}

Bootstrap meet_by_url(const Rendezvous& given, const rendezvous::JoinRequest& request, const Options& options,
                      Store::Deadline deadline) {
  if (given.url.starts_with("tcp://")) {
    runtime::MeetingAddress place{.host = {}, .job = runtime::process_variables()["RONDO_JOB"]};
    if (place.job.empty()) place.job = "job";
    runtime::parse_endpoint(given.url.substr(6), "tcp://", place.host, place.port);
    return runtime::meet_at(place, runtime::read_trust(-1), request, options, deadline);
  }
  if (given.url.starts_with("file:///")) {
    return runtime::meet_by_file(given.url.substr(7), request, options, deadline);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' is no url to meet at: use env://, tcp://host:port or file:///path", given.url));
}

Bootstrap meet_by_url(const Rendezvous& given, const Options& options, Store::Deadline deadline) {
  check_place(given);
  return meet_by_url(given, request_of(given, options), options, deadline);
}

// Waits at the place until a communicator takes this process in.
Bootstrap enlist_at(const Rendezvous& place, const Options& options, Store::Deadline deadline) {
  if (place.url == "env://") return runtime::meet(runtime::read_place(runtime::process_variables()), options, deadline);
  return meet_by_url(place, {.node = options.node, .enlists = true}, options, deadline);
}

void check_joining(const Rendezvous& place) {
  if (place.rank != -1 || place.world_size != -1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("join: rank {} and world size {} were given, but the communicator that grows gives them: "
                            "leave both at -1",
                            place.rank, place.world_size));
  }
  if (place.store != nullptr) {
    throw Error(ErrorCode::unsupported,
                "join: nobody can wait at a store of your own: meet by a url or the environment");
  }
}

// Ranks that fail while they let this process join may let it join again, and others may.
Communicator join_at(const Rendezvous& place, const Options& options) {
  check_joining(place);
  const Store::Deadline deadline = deadline_after(options.join_timeout);
  for (;;) {
    Bootstrap bootstrap = enlist_at(place, options, deadline);
    bootstrap.deadline = deadline;
    try {
      return join_growth(std::move(bootstrap), options);
    } catch (const Error& error) {
      const bool is_over = error.error_code() != ErrorCode::peer_lost && error.error_code() != ErrorCode::aborted;
      if (is_over || std::chrono::steady_clock::now() >= deadline) throw;
      log::info("{}; this process waits to join again", error.what());
    }
  }
}

Communicator meet_given(const Rendezvous& given, const Options& options) {
  const Store::Deadline deadline = deadline_after(options.join_timeout);
  if (given.store != nullptr) {
    check_place(given);
    return create_over(given, options, deadline);
  }
  if (given.url != "env://") return make(meet_by_url(given, options, deadline), options, deadline);
  const auto launch = runtime::read_launch(runtime::process_variables());
  if (!launch) return make_communicator(world_of_one(), options);
  if (launch->joins_later) return join_at({}, options);
  return make(runtime::meet(*launch, options, deadline), options, deadline);
}

std::shared_ptr<Store> store_of(const Rendezvous& given, const Options& options) {
  const Store::Deadline deadline = deadline_after(options.join_timeout);
  if (given.store != nullptr) {
    throw Error(ErrorCode::invalid_argument, "open_store() was given a store: use that one");
  }
  if (given.url != "env://") return meet_by_url(given, options, deadline).store;
  const auto launch = runtime::read_launch(runtime::process_variables());
  if (!launch) return world_of_one().store;
  if (launch->joins_later) {
    throw Error(ErrorCode::unsupported,
                "open_store: the launcher started this process in the place of a lost rank (RONDO_JOINS_AS), and the "
                "others' store is not open to it: it joins by from_environment() or join()");
  }
  return runtime::meet(*launch, options, deadline).store;
}

constexpr const char* kCreate = "create the communicator";

}  // namespace

Communicator Communicator::from_environment(Options options) {
  return with_errors_of_ours(kCreate, [&] { return meet_given({}, checked(std::move(options))); });
}

Communicator Communicator::join(const Rendezvous& place, Options options) {
  return with_errors_of_ours("join", [&] { return join_at(place, checked(std::move(options))); });
}

Communicator Communicator::create(const Rendezvous& given, Options options) {
  return with_errors_of_ours(kCreate, [&] { return meet_given(given, checked(std::move(options))); });
}

std::shared_ptr<Store> open_store(const Rendezvous& given, Options options) {
  return with_errors_of_ours("open the store", [&] { return store_of(given, checked(std::move(options))); });
}

}  // namespace rondo
