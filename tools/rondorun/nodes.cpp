// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/nodes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include <rondo/error.hpp>

#include "comm/base/machine.hpp"
#include "rendezvous/survivals.hpp"
#include "tools/rondorun/free_port.hpp"

namespace rondo::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kJobLimit = 24h * 365 * 10;  // as long as the job takes
constexpr auto kReportLimit = 30s;
constexpr auto kBetweenReminders = 5s;  // of who is waited for

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(const Store::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string verdict_text(const Failure& verdict) {
  return fmt::format("{} {} {}", verdict.exit_code, verdict.rank, verdict.sentence);
}

Failure verdict_from(const std::string& text) {
  Failure result;
  std::istringstream words(text);
  words >> result.exit_code >> result.rank >> std::ws;
  std::getline(words, result.sentence, '\0');
  return result;
}

std::string verdict_of(int turn) { return fmt::format("launcher/verdict/{}", turn); }
std::string decision_of(int turn) { return fmt::format("launcher/decision/{}", turn); }
constexpr const char *kGoesOn = "goes on", *kEnds = "ends";

}  // namespace

Nodes::Nodes(process::EventLoop& loop, const Options& options, std::optional<rendezvous::Secret> secret,
             Handlers handlers)
    : loop_(loop),
      options_(options),
      secret_(std::move(secret)),
      secret_fd_(secret_ ? secret_->to_memfd() : Fd()),
      handlers_(std::move(handlers)),
      node_(options.node),
      listener_([this] { listen(); }),
      speaker_([this](const std::stop_token& stop) { speak(stop); }) {}

Store::Deadline Nodes::join_deadline() const { return Clock::now() + options_.join_timeout; }

void Nodes::listen() {
  bool meeting = true;
  try {
    meet();
    const Placement placement = exchange_placements();
    meeting = false;
    {
      const std::lock_guard lock(mutex_);
      met_ = true;
      something_to_say_.notify_one();
    }
    loop_.post([this, placement] { handlers_.joined(placement); });
    for (int turn = 0;; ++turn) {
      const auto verdict = verdict_from(await(verdict_of(turn)));
      loop_.post([this, verdict] { handlers_.verdict(verdict); });
      if (verdict.exit_code == 0) return;
      const bool goes_on = await(decision_of(turn)) == kGoesOn;
      loop_.post([this, goes_on] { handlers_.decision(goes_on); });
      if (!goes_on) return;
    }
  } catch (const std::exception& error) {
    loop_.post([this, sentence = what_failed(error, meeting)] { handlers_.lost(sentence); });
  }
}

std::string Nodes::launcher_of(int node) const {
  const auto index = static_cast<std::size_t>(node);
  return fmt::format("the launcher of node {}{}", node,
                     index < launchers_.size() ? fmt::format(" on host {}", launchers_[index]) : "");
}

std::string Nodes::what_failed(const std::exception& error, bool meeting) const {
  if (meeting) return (connected_ ? fmt::format("not all {} nodes came: ", options_.nodes) : "") + error.what();
  const auto* known = dynamic_cast<const Error*>(&error);
  int node = known == nullptr ? -1 : known->culprit();
  if (node < 0 && !server_ && known != nullptr && known->error_code() == ErrorCode::peer_lost) node = 0;  // it serves
  if (node >= 0 && node < options_.nodes) return fmt::format("{} is gone: {}", launcher_of(node), error.what());
  return fmt::format("another node's launcher is gone: {}", error.what());
}

// The first thing that the speaker does.
void Nodes::say_who_is_missing(const std::stop_token& stop) {
  for (std::unique_lock lock(mutex_);;) {
    if (something_to_say_.wait_for(lock, stop, kBetweenReminders, [this] { return met_; }) || stop.stop_requested())
      return;
    const bool connected = connected_;
    lock.unlock();
    const std::string sentence = connected ? missing_sentence()
                                           : fmt::format("waiting for the launcher of node 0 at {}",
                                                         endpoint_text(options_.master_address, options_.master_port));
    if (!sentence.empty()) loop_.post([this, sentence] { handlers_.waiting(sentence); });
    lock.lock();
  }
}

std::string Nodes::missing_sentence() {
  std::vector<int> missing;
  for (int node = 0; node < options_.nodes; ++node)
    if (!client_->try_get(fmt::format("launcher/node/{}", node))) missing.push_back(node);
  return missing.empty()
             ? ""
             : fmt::format("waiting for {} of {} nodes: {}", missing.size(), options_.nodes, cpu_list(missing));
}

// Node 0 serves. Without --node-rank, whoever can bind the master's address is node 0.
void Nodes::meet() {
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
  {
    const std::lock_guard lock(mutex_);
    connected_ = true;
  }
  compare_jobs();
  take_place();
}

// Who meets here by mistake is told so before anything starts. What a job is called on purpose is one job, whatever its
// nodes run.
void Nodes::compare_jobs() {
  constexpr std::string_view kKey = "launcher/job";
  const auto owner = fmt::format("{} (pid {})", host_name(), ::getpid());
  const auto job =
      fmt::format("{} nodes{}", options_.nodes,
                  options_.job_is_given ? "" : fmt::format(" that run '{}'", fmt::join(options_.command, " ")));
  if (server_) client_->set(std::string(kKey), bytes_of(owner + '\n' + job));
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

void Nodes::take_place() {
  const auto owner = fmt::format("{} (pid {})", host_name(), ::getpid());
  const auto take = [&](int node) {
    return client_->compare_and_set(fmt::format("launcher/node/{}", node), std::nullopt, bytes_of(owner));
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

Placement Nodes::exchange_placements() {
  const auto mine =
      fmt::format("{} {} {} {} (pid {})", options_.nodes, options_.local_size, free_port(), host_name(), ::getpid());
  const auto values = client_->exchange("launcher/nodes", node_, options_.nodes, bytes_of(mine), join_deadline());
  Placement result;
  result.node = node_;
  result.nodes = options_.nodes;
  result.local_size = options_.local_size;
  result.world_size = 0;
  for (int node = 0; node < options_.nodes; ++node) {
    std::istringstream words(text_of(values[static_cast<std::size_t>(node)]));
    int nodes = 0, local_size = 0;
    std::uint16_t port = 0;
    words >> nodes >> local_size >> port >> std::ws;
    std::getline(words, launchers_.emplace_back());
    if (node < node_) result.first_rank += local_size;
    if (node == 0) result.master_port = port;
    result.world_size += local_size;
  }
  result.master_address = options_.master_address;
  result.rendezvous = endpoint_text(options_.master_address, options_.master_port);
  result.job = options_.job;
  result.secret_fd = secret_fd_.get();
  return result;
}

// One participant more than there are nodes: its value is the answer. All nodes wait here while the job runs, so each
// of them is told at once when another's launcher is gone.
std::string Nodes::await(const std::string& answer) {
  return text_of(client_->exchange(answer, node_, options_.nodes + 1, {}, Clock::now() + kJobLimit).back());
}

// The first one that is given counts.
void Nodes::give(const std::string& answer, const std::string& text) {
  if (!client_->compare_and_set(answer + " given", std::nullopt, bytes_of(text))) return;
  client_->exchange(answer, options_.nodes, options_.nodes + 1, bytes_of(text), Clock::now() + kReportLimit);
}

void Nodes::report(int turn, const Failure& failure) {
  say([this, turn, failure] {
    Failure verdict = failure;
    for (const int rank : failure.blamed) {
      const auto who = client_->try_get(fmt::format("launcher/ended well/{}", rank));
      if (!who) continue;
      verdict.sentence = left_while_needed(text_of(*who), failure.sentence);
      break;
    }
    give(verdict_of(turn), verdict_text(verdict));
  });
}

void Nodes::judge(int turn, int failed_rank, bool ends) {
  say([this, turn, failed_rank, ends] { decide(turn, failed_rank, ends); });
}

void Nodes::ended(int turn, int failed_rank) {
  say([this, turn, failed_rank] {
    const bool all = client_->add(fmt::format("launcher/ended/{}", turn), 1) == options_.nodes;
    if (all) decide(turn, failed_rank, true);
  });
}

void Nodes::decide(int turn, int failed_rank, bool ends) {
  const bool missed = failed_rank >= 0 && client_->try_get(rendezvous::missed_key(failed_rank)).has_value();
  if (missed || ends) give(decision_of(turn), missed ? kGoesOn : kEnds);
}

void Nodes::ended_well(int rank, const std::string& who) {
  say([this, rank, who] { client_->set(fmt::format("launcher/ended well/{}", rank), bytes_of(who)); });
}

void Nodes::finished(int turn) {
  say([this, turn] {
    if (client_->add("launcher/finished", 1) != options_.nodes) return;
    give(verdict_of(turn), verdict_text({.sentence = "", .exit_code = 0}));
  });
}

void Nodes::leave() {
  say([this] {
    if (!server_) {
      client_->set(fmt::format("launcher/left/{}", node_), {});
    } else {
      // Ranks of other nodes may still be ending, and use the server while they do.
      const auto deadline = Clock::now() + options_.grace_period + 5s;
      for (int node = 1; node < options_.nodes; ++node) client_->get(fmt::format("launcher/left/{}", node), deadline);
    }
    loop_.post([this] { handlers_.left(); });
  });
}

void Nodes::say(std::function<void()> words) {
  const std::lock_guard lock(mutex_);
  to_say_.push_back(std::move(words));
  something_to_say_.notify_one();
}

void Nodes::speak(const std::stop_token& stop) {
  try {
    say_who_is_missing(stop);
  } catch (const std::exception&) {  // the listener has the same, and says so
  }
  for (;;) {
    std::unique_lock lock(mutex_);
    if (!something_to_say_.wait(lock, stop, [this] { return !to_say_.empty(); })) return;
    const auto words = std::move(to_say_.front());
    to_say_.pop_front();
    lock.unlock();
    try {
      words();
    } catch (const std::exception& error) {
      loop_.post([this, sentence = std::string(error.what())] { handlers_.lost(sentence); });
    }
  }
}

}  // namespace rondo::launcher
