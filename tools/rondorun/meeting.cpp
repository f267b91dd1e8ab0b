// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/meeting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include <rondo/error.hpp>

#include "comm/base/machine.hpp"
#include "rendezvous/socket.hpp"
#include "rendezvous/survivals.hpp"
#include "tools/rondorun/cores.hpp"
#include "tools/rondorun/free_port.hpp"

namespace rondo::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::endpoint_text;

constexpr auto kConfirmLimit = 10s;  // for a node that was chosen to say that it is there
// A communicator counts its generation up as it shrinks and grows, and no number of one start is another's.
constexpr int kGenerationsOfStart = 1000;
constexpr const char *kOpen = "launcher/open", *kClosed = "closed ";
const std::string kStaysAway = "stays away: ";  // and its number at the last start
constexpr int kNoWish = 1 << 20;                // behind all nodes that there were

std::string this_launcher() { return fmt::format("{} (pid {})", host_name(), ::getpid()); }
double seconds_of(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }
std::string arrival(int number) { return fmt::format("arrival/{}", number); }

std::string nodes_text(const Options& options) {
  return is_elastic(options) ? fmt::format("{} to {}", options.least_nodes, options.nodes)
                             : std::to_string(options.nodes);
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
      there += text_of(*one).starts_with(kStaysAway) ? 0 : 1;
    }
    return fmt::format("waiting for {} nodes: {} {} there", nodes_text(options_), there, there == 1 ? "is" : "are");
  }
  std::vector<int> missing;
  for (int node = 0; node < options_.nodes; ++node)
    if (!client_->try_get(fmt::format("launcher/node/{}", node))) missing.push_back(node);
  return missing.empty()
             ? ""
             : fmt::format("waiting for {} of {} nodes: {}", missing.size(), options_.nodes, cpu_list(missing));
}

// Node 0 serves. Without --node-rank, whoever can bind the master's address is node 0.
void Meeting::connect() {
  if (node_ <= 0) {
    try {
      server_ =
          std::make_unique<rendezvous::Server>(rendezvous::ServerOptions{.bind = {options_.master_address},
                                                                         .port = options_.master_port,
                                                                         .secret = secret_,
                                                                         .encrypted = options_.encrypt,
                                                                         .job = options_.job,
                                                                         .link_patience = options_.link_patience});
      node_ = 0;
    } catch (const Error&) {
      if (node_ == 0) throw;
    }
  }
  client_ = rendezvous::Client::connect({.host = options_.master_address,
                                         .port = options_.master_port,
                                         .secret = secret_,
                                         .job = options_.job,
                                         .encrypted = options_.encrypt,
                                         .link_patience = options_.link_patience},
                                        join_deadline());
  connected_ = true;
  compare_jobs();
  if (!is_elastic(options_)) return take_place();
  if (server_) client_->set(kOpen, bytes_of("0"));
}

// Who meets here by mistake is told so before anything starts. What a job is called on purpose is one job, whatever its
// nodes run.
void Meeting::compare_jobs() {
  constexpr std::string_view kKey = "launcher/job";
  const auto job =
      fmt::format("{} nodes{}{}", nodes_text(options_),
                  options_.job_is_given ? "" : fmt::format(" that run '{}'", fmt::join(options_.command, " ")),
                  options_.max_restarts == 0 ? "" : fmt::format(" with --max-restarts {}", options_.max_restarts));
  if (server_) client_->set(std::string(kKey), bytes_of(this_launcher() + '\n' + job));
  const std::string theirs = text_of(client_->get(std::string(kKey), join_deadline()));
  const std::size_t end = theirs.find('\n');
  if (theirs.substr(end + 1) == job) return;
  throw Error(
      ErrorCode::mismatch,
      fmt::format("another job meets at {}: the launcher on {} makes a world of {}, this one of {}; give each job "
                  "a --master-port or a --rdzv-id of its own",
                  endpoint_text(options_.master_address, options_.master_port), theirs.substr(0, end),
                  theirs.substr(end + 1), job));
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
    start_ = std::stoi(text_of(client_->get(kOpen, join_deadline())));
    const int own = come_to(start_);
    if (server_) choose(start_, restarts);
    const auto text = text_of(client_->get(key_of(start_, "members"), Store::Deadline::max()));
    std::istringstream words(text);
    if (text.starts_with(kClosed)) {
      Closed closed;
      std::string word;
      words >> word >> closed.exit_code >> std::ws;
      std::getline(words, closed.sentence);
      throw closed;
    }
    int before = 0;
    std::vector<int> chosen;
    words >> before;
    for (int number = 0; words >> number;) chosen.push_back(number);
    const auto place = std::find(chosen.begin(), chosen.end(), own);
    if (place == chosen.end()) continue;
    try {
      auto placement = exchange_placements(static_cast<int>(place - chosen.begin()), static_cast<int>(chosen.size()),
                                           Clock::now() + kConfirmLimit);
      placement.restarts = before;
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
               bytes_of(fmt::format("{} {}", nodes_ > 0 ? 1 : 0, node_ < 0 ? kNoWish : node_)));
  return number;
}

// Node 0 may wait for the next start already, so it is told there.
void Meeting::lose(int start, int node) {
  lost_since_ = start;
  if (server_) stay_away(start + 1, node);
}

void Meeting::stay_away(int start, int node) const {
  const auto number = client_->add(key_of(start, "arrivals"), 1);
  client_->set(key_of(start, arrival(static_cast<int>(number))), bytes_of(kStaysAway + std::to_string(node)));
}

void Meeting::await_newcomer(int start) const {
  for (int number = 1;; ++number)
    if (!text_of(client_->get(key_of(start, arrival(number)), Store::Deadline::max())).starts_with(kStaysAway)) return;
}

// At node 0, which is always among them, and the first.
void Meeting::choose(int start, int restarts) {
  std::vector<Arrival> all;
  try {
    all = await_arrivals(start);
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::timeout) throw;
    return close(start, {error.what(), 1});
  }
  const auto sort = [&](const auto& key) {
    std::stable_sort(all.begin(), all.end(), [&](const Arrival& l, const Arrival& r) { return key(l) < key(r); });
  };
  sort([](const Arrival& one) { return one.was_there ? 0 : 1; });
  if (all.size() > static_cast<std::size_t>(options_.nodes)) all.resize(static_cast<std::size_t>(options_.nodes));
  sort([](const Arrival& one) { return one.wish; });
  std::string members = std::to_string(restarts);
  for (const Arrival& one : all) members += fmt::format(" {}", one.number);
  client_->set(kOpen, bytes_of(std::to_string(start + 1)));
  client_->set(key_of(start, "members"), bytes_of(members));
}

// As torchrun waits: for all, or some time longer once the least are there. After the first start, those who are left
// are all that it waits for, and who came meanwhile is there.
std::vector<Meeting::Arrival> Meeting::await_arrivals(int start) {
  std::vector<Arrival> all;
  int number = 1;                // of the next
  std::set<std::string> absent;  // once each: one that leaves is lost, too
  const auto expected = [&] { return nodes_ == 0 ? options_.nodes : nodes_ - static_cast<int>(absent.size()); };
  const auto take = [&](const Store::Bytes& bytes) {
    const std::string text = text_of(bytes);
    const Arrival next{.number = number++};
    if (text.starts_with(kStaysAway)) return void(absent.insert(text));
    std::istringstream words(text);
    Arrival& one = all.emplace_back(next);
    words >> one.was_there >> one.wish;
    one.was_there = one.was_there || nodes_ == 0;
  };
  const auto next = [&] { return key_of(start, arrival(number)); };
  const auto there = [&] {
    return std::count_if(all.begin(), all.end(), [](const Arrival& a) { return a.was_there; });
  };
  const int least = options_.least_nodes;
  const auto are_enough = [&] { return static_cast<int>(all.size()) >= least; };
  for (auto deadline = join_deadline(); there() < expected() || !are_enough();) {
    if (static_cast<int>(all.size()) == least) deadline = Clock::now() + options_.last_call;
    try {
      take(client_->get(next(), deadline));
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::timeout) throw;
      if (are_enough()) break;
      throw Error(ErrorCode::timeout,
                  fmt::format("{} of at least {} nodes came within {} s, which are too few to start", all.size(), least,
                              seconds_of(options_.join_timeout)));
    }
  }
  while (const auto waiting = client_->try_get(next())) take(*waiting);
  return all;
}

void Meeting::close(int start, const Closed& how) {
  client_->compare_and_set(key_of(start, "members"), std::nullopt,
                           bytes_of(fmt::format("{}{} {}", kClosed, how.exit_code, how.sentence)));
}

Placement Meeting::exchange_placements(int node, int nodes, Store::Deadline deadline) {
  const auto mine = fmt::format("{} {} {} {}", nodes, options_.local_size, free_port(), this_launcher());
  const auto values = client_->exchange(key_of(start_, "nodes"), node, nodes, bytes_of(mine), deadline);
  Placement result;
  result.node = node;
  result.nodes = nodes;
  result.local_size = options_.local_size;
  result.world_size = 0;
  launchers_.clear();
  for (int each = 0; each < nodes; ++each) {
    std::istringstream words(text_of(values[static_cast<std::size_t>(each)]));
    int count = 0, local_size = 0;
    std::uint16_t port = 0;
    words >> count >> local_size >> port >> std::ws;
    std::getline(words, launchers_.emplace_back());
    if (each < node) result.first_rank += local_size;
    if (each == 0) result.master_port = port;
    result.world_size += local_size;
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
