// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/meeting.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include <rondo/error.hpp>

#include "comm/base/machine.hpp"
#include "rendezvous/listen.hpp"
#include "rendezvous/socket.hpp"
#include "rendezvous/survivals.hpp"
#include "tools/rondorun/cores.hpp"
#include "tools/rondorun/free_port.hpp"

namespace rondo::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::endpoint_text;

constexpr auto kConfirmLimit = 10s;                           // for a node that was chosen to say that it is there
constexpr auto kBetweenRollCalls = 250ms, kRollCall = 100ms;  // for whoever is awaited
constexpr std::chrono::milliseconds kFirstPatience{200}, kLongestPatience{5000};  // with a port that is taken
// A communicator counts its generation up as it shrinks and grows, and no number of one start is another's.
constexpr int kGenerationsOfStart = 1000;
constexpr int kMostOfWorld = 1 << 20;  // of one world
constexpr const char* kOpen = "launcher/open";
constexpr const char* kNode0 = "the launcher of node 0";
constexpr int kNoWish = 1 << 20;  // behind all nodes that there were

std::string this_launcher() { return fmt::format("{} (pid {})", host_name(), ::getpid()); }
double seconds_of(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }
std::string presence_of(const std::string& launcher) { return fmt::format("launcher/alive/{}", launcher); }
std::string arrival(int number) { return fmt::format("arrival/{}", number); }
Arrival arrival_of(const Store::Bytes& said, int number) {
  return arrival_from(text_of(said), fmt::format("the launcher that came as number {}", number));
}

}  // namespace

std::string key_of(int start, std::string_view what) { return fmt::format("launcher/{}/{}", start, what); }
std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(const Store::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Meeting::Meeting(const Options& options, std::optional<rendezvous::Secret> secret)
    : options_(options),
      secret_(std::move(secret)),
      secret_fd_(secret_ ? secret_->to_memfd() : Fd()),
      node_(options.node) {}

std::string Meeting::missing_sentence() const {
  if (!connected_)
    return fmt::format("waiting for the launcher of node 0 at {}",
                       endpoint_text(options_.master_address, options_.master_port));
  const int start = start_;
  if (is_elastic(options_)) {
    int there = 0;
    for (int number = 1; there < options_.nodes; ++number) {
      const auto one = client_->try_get(key_of(start, arrival(number)));
      if (!one) break;
      there += arrival_of(*one, number).stays_away ? 0 : 1;
    }
    return fmt::format("waiting for {} nodes: {} {} there{}", nodes_text(options_), there, there == 1 ? "is" : "are",
                       begun());
  }
  std::vector<int> missing;
  for (int node = 0; node < options_.nodes; ++node)
    if (!client_->try_get(fmt::format("launcher/node/{}", node))) missing.push_back(node);
  return missing.empty() ? ""
                         : fmt::format("waiting for {} of {} nodes: {}{}", missing.size(), options_.nodes,
                                       cpu_list(missing), begun());
}

// A launcher that was not told its node, and came to the master's host when the job was over, begins another one.
std::string Meeting::begun() const {
  if (!server_ || options_.node == 0 || start_ > 0) return "";
  return fmt::format("; this launcher is node 0 of a job that it has begun at {}, as nobody served there",
                     endpoint_text(options_.master_address, options_.master_port));
}

// Node 0 serves. Without --node-rank, whoever can bind the master's address is node 0. Of two that bind and listen at
// once the kernel may refuse both, and who has the port may be about to go: so who meets nobody there tries once more.
void Meeting::connect() {
  const auto deadline = join_deadline();
  bool may_serve = node_ <= 0;
  for (auto patience = kFirstPatience; !client_; patience = std::min(2 * patience, kLongestPatience)) {
    if (may_serve && !server_) may_serve = try_to_serve();
    const bool tries_again = may_serve && !server_;
    try {
      client_ = reach_server(tries_again ? std::min<Store::Deadline>(deadline, Clock::now() + patience) : deadline);
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::timeout || !tries_again || Clock::now() >= deadline) throw;
    }
  }
  connected_ = true;
  compare_jobs();
  if (!is_elastic(options_)) return take_place();
  if (server_) client_->set(kOpen, bytes_of(text_of_start(0)));
}

// False: nor will it later, as the address is none of this host's.
bool Meeting::try_to_serve() {
  try {
    server_ = std::make_unique<rendezvous::Server>(rendezvous::ServerOptions{.bind = {options_.master_address},
                                                                             .port = options_.master_port,
                                                                             .secret = secret_,
                                                                             .encrypted = options_.encrypt,
                                                                             .job = options_.job,
                                                                             .link_patience = options_.link_patience});
    node_ = 0;
  } catch (const rendezvous::AddressInUse&) {
    if (node_ == 0) throw;
  } catch (const Error&) {
    if (node_ == 0) throw;
    return false;
  }
  return true;
}

std::shared_ptr<rendezvous::Client> Meeting::reach_server(Store::Deadline deadline) const {
  return rendezvous::Client::connect({.host = options_.master_address,
                                      .port = options_.master_port,
                                      .secret = secret_,
                                      .job = options_.job,
                                      .encrypted = options_.encrypt,
                                      .link_patience = options_.link_patience},
                                     deadline);
}

// Who meets here by mistake, or by other terms, is told so before anything starts.
void Meeting::compare_jobs() {
  const std::string key = "launcher/job";
  if (server_) client_->set(key, bytes_of(terms_of(options_, this_launcher())));
  compare_terms(text_of(client_->get(key, join_deadline())), options_,
                endpoint_text(options_.master_address, options_.master_port));
}

void Meeting::take_place() {
  const auto take = [&](int node) {
    return client_->compare_and_set(fmt::format("launcher/node/{}", node), std::nullopt, bytes_of(this_launcher()));
  };
  if (node_ >= 0) {
    if (take(node_)) return;
    const auto other = client_->try_get(fmt::format("launcher/node/{}", node_));
    throw Error(ErrorCode::invalid_argument, fmt::format("--node-rank {} is taken by the launcher on {}", node_,
                                                         other ? text_of(*other) : "another host"));
  }
  for (node_ = 1; node_ < options_.nodes; ++node_)
    if (take(node_)) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("all {} nodes of the job are there already, this one is too many", options_.nodes));
}

Placement Meeting::gather(int restarts) {
  Placement placement = is_elastic(options_) ? gather_those_who_come(restarts) : gather_all(restarts);
  nodes_ = placement.nodes;
  return placement;
}

Placement Meeting::gather_all(int restarts) {
  if (nodes_ > 0) start_ = start_ + 1;
  Placement placement = exchange_placements(node_, options_.nodes, join_deadline());
  placement.restarts = restarts;
  return placement;
}

// Until all who were chosen for a start are there. Who comes too late for one comes to the next.
Placement Meeting::gather_those_who_come(int restarts) {
  for (;;) {
    start_ = start_from(text_of(client_->get(kOpen, join_deadline())), kNode0);
    const int own = come_to(start_);
    if (server_) choose(start_, restarts);
    const auto members = members_from(text_of(client_->get(key_of(start_, "members"), Store::Deadline::max())), kNode0);
    if (members.closed) throw Closed{.sentence = members.sentence, .exit_code = members.exit_code};
    const auto& chosen = members.chosen;
    const auto place = std::find(chosen.begin(), chosen.end(), own);
    if (place == chosen.end()) continue;
    try {
      auto placement = exchange_placements(static_cast<int>(place - chosen.begin()), static_cast<int>(chosen.size()),
                                           Clock::now() + kConfirmLimit);
      placement.restarts = members.restarts;
      node_ = placement.node;
      return placement;
    } catch (const Error& error) {
      if (error.culprit() < 0) throw;  // it is we who are gone, or node 0
      lose(start_, error.culprit());
    }
  }
}

// Its number in the line. Nodes that were there before keep their order.
int Meeting::come_to(int start) const {
  const auto number = static_cast<int>(client_->add(key_of(start, "arrivals"), 1));
  client_->set(key_of(start, arrival(number)),
               bytes_of(text_of(Arrival{.wish = node_ < 0 ? kNoWish : node_, .was_there = nodes_ > 0})));
  return number;
}

// Node 0 may wait for the next start already, so it is told there.
void Meeting::lose(int start, int node) {
  lost_since_ = start;
  if (server_) stay_away(start + 1, node);
}

void Meeting::stay_away(int start, int node) const {
  const auto number = client_->add(key_of(start, "arrivals"), 1);
  client_->set(key_of(start, arrival(static_cast<int>(number))),
               bytes_of(text_of(Arrival{.wish = node, .stays_away = true})));
}

void Meeting::await_newcomer(int start) const {
  for (int number = 1;; ++number)
    if (!arrival_of(client_->get(key_of(start, arrival(number)), Store::Deadline::max()), number).stays_away) return;
}

// At node 0, which is always among them, and the first.
void Meeting::choose(int start, int restarts) {
  std::vector<Numbered> all;
  try {
    all = await_arrivals(start);
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::timeout) throw;
    return close(start, {error.what(), 1});
  }
  const auto sort = [&](const auto& key) {
    std::stable_sort(all.begin(), all.end(),
                     [&](const Numbered& l, const Numbered& r) { return key(l.arrival) < key(r.arrival); });
  };
  sort([](const Arrival& one) { return one.was_there ? 0 : 1; });
  if (all.size() > static_cast<std::size_t>(options_.nodes)) all.resize(static_cast<std::size_t>(options_.nodes));
  sort([](const Arrival& one) { return one.wish; });
  Members members{.restarts = restarts};
  for (const Numbered& one : all) members.chosen.push_back(one.number);
  client_->set(kOpen, bytes_of(text_of_start(start + 1)));
  client_->set(key_of(start, "members"), bytes_of(text_of(members)));
}

// As torchrun waits: for all, or some time longer once the least are there. After the first start, those who are left
// are all that it waits for, and who came meanwhile is there.
std::vector<Meeting::Numbered> Meeting::await_arrivals(int start) {
  not_seen_.clear();
  std::vector<Numbered> all;
  int number = 1;        // of the next
  std::set<int> absent;  // once each: one that leaves is lost, too
  const auto expected = [&] { return nodes_ == 0 ? options_.nodes : nodes_ - static_cast<int>(absent.size()); };
  const auto take = [&](const Store::Bytes& bytes) {
    Arrival one = arrival_of(bytes, number);
    const int own = number++;
    if (one.stays_away) return void(absent.insert(one.wish));
    one.was_there = one.was_there || nodes_ == 0;
    all.push_back({own, one});
  };
  const auto next = [&] { return key_of(start, arrival(number)); };
  const auto there = [&] {
    return std::count_if(all.begin(), all.end(), [](const Numbered& one) { return one.arrival.was_there; });
  };
  const int least = options_.least_nodes;
  const auto are_enough = [&] { return static_cast<int>(all.size()) >= least; };
  const auto awaited = [&] {
    std::set<int> nodes;
    for (int node = 1; node < nodes_; ++node)
      if (!absent.contains(node)) nodes.insert(node);
    for (const auto& [came_as, one] : all)
      if (one.was_there) nodes.erase(one.wish);
    return nodes;
  };
  bool is_last_call = false;
  for (auto deadline = join_deadline(); there() < expected() || !are_enough();) {
    if (are_enough() && !std::exchange(is_last_call, true)) deadline = Clock::now() + options_.last_call;
    try {
      take(client_->get(next(), std::min(deadline, Clock::now() + kBetweenRollCalls)));
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::timeout) throw;
      if (Clock::now() < deadline) {
        look_for_one(start, awaited());
        continue;
      }
      if (are_enough()) break;
      throw Error(ErrorCode::timeout,
                  fmt::format("{} of at least {} nodes came within {} s, which are too few to start", all.size(), least,
                              seconds_of(options_.join_timeout)));
    }
  }
  while (const auto waiting = client_->try_get(next())) take(*waiting);
  return all;
}

// Three take part in its exchange, of which the third never comes: so it ends by a loss, or when node 0 has looked.
void Meeting::stand_by() const {
  for (;;) {
    try {
      client_->exchange(presence_of(this_launcher()), 1, 3, {}, Store::Deadline::max());
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::timeout) return;  // the listener has the same, and says so
    }
  }
}

bool Meeting::stands_by(const std::string& launcher) const {
  try {
    client_->exchange(presence_of(launcher), 0, 3, {}, Clock::now() + kRollCall);
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::timeout && error.culprit() != 1) throw;
    return error.culprit() == 2;  // the first that is missing
  }
  return true;
}

// All who watch hear of the first that is lost. Another that goes at the same time is found by looking, one of those
// who are awaited each time; twice, as it may be about to stand by again.
void Meeting::look_for_one(int start, const std::set<int>& awaited) {
  if (awaited.empty()) return;
  const auto after = awaited.upper_bound(looked_for_);
  looked_for_ = after == awaited.end() ? *awaited.begin() : *after;
  const std::string& launcher = launchers_.at(static_cast<std::size_t>(looked_for_));
  int& times = not_seen_[looked_for_];
  times = stands_by(launcher) ? 0 : times + 1;
  if (times < 2) return;
  when_gone_(looked_for_, launcher);
  stay_away(start, looked_for_);
}

void Meeting::close(int start, const Closed& how) {
  client_->compare_and_set(
      key_of(start, "members"), std::nullopt,
      bytes_of(text_of(Members{.closed = true, .exit_code = how.exit_code, .sentence = how.sentence})));
}

Placement Meeting::exchange_placements(int node, int nodes, Store::Deadline deadline) {
  const NodeWord own{.nodes = nodes,
                     .local_size = options_.local_size,
                     .port = free_port(),
                     .grace = options_.grace_period,
                     .launcher = this_launcher(),
                     .role = options_.role};
  const auto values = client_->exchange(key_of(start_, "nodes"), node, nodes, bytes_of(text_of(own)), deadline);
  Placement result;
  result.node = node;
  result.nodes = nodes;
  result.local_size = options_.local_size;
  result.world_size = result.role_world_size = 0;
  launchers_.clear();
  for (int each = 0; each < nodes; ++each) {
    const auto said =
        node_word_from(text_of(values[static_cast<std::size_t>(each)]), fmt::format("the launcher of node {}", each));
    launchers_.push_back(said.launcher);
    if (each < node) result.first_rank += said.local_size;
    if (said.role == options_.role && each < node) result.first_role_rank += said.local_size;
    if (said.role == options_.role) result.role_world_size += said.local_size;
    result.longest_grace = std::max(result.longest_grace, said.grace);
    if (each == 0) result.master_port = said.port;
    if (said.local_size > kMostOfWorld - result.world_size)
      throw Error(ErrorCode::corrupt_message,
                  fmt::format("{} nodes have more than {} ranks together", nodes, kMostOfWorld));
    result.world_size += said.local_size;
  }
  result.master_address = options_.master_address;
  result.rendezvous = endpoint_text(options_.master_address, options_.master_port);
  result.job = options_.job;
  result.secret_fd = secret_fd_.get();
  result.start = start_;
  result.generation = start_ * kGenerationsOfStart;
  if (server_ && start_ > 0) forget_missed(result.world_size);
  return result;
}

// Whom the ranks of the last start went on without. Node 0's own ranks start later, and without them nobody is missed.
void Meeting::forget_missed(int world_size) {
  for (int rank = 0; rank < world_size; ++rank) client_->erase(rendezvous::missed_key(rank));
}

}  // namespace rondo::launcher
