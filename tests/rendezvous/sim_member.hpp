// SPDX-License-Identifier: Apache-2.0
// A rank's whole life in simulated time, step by step as comm/setup/ has it: it joins, or enlists and is taken in; its
// communicator works, grows and, where somebody is lost, shrinks.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "tests/rendezvous/sim_links.hpp"
#include "tests/rendezvous/sim_process.hpp"

namespace rondo::rendezvous::test {

class SimMember final : public SimProcess {
 public:
  static constexpr int kSteps = 8;
  struct Plan {
    std::uint64_t seed = 0;
    int number = 0;                // of the process
    int rank = 0, world_size = 1;  // rank -1: it enlists
    int* host = nullptr;           // the number of the process that serves; null: a server does by itself
    bool dies_grown = false;       // as soon as it knows that all members have the larger communicator
    bool dies_agreeing = false;    // while they tell each other
  };

  SimMember(Network& network, SimLinks& links, const std::optional<Secret>& secret, Plan plan)
      : SimProcess(network, secret), links_(links), plan_(plan) {}

  void die_agreeing() { plan_.dies_agreeing = true; }

  bool enlists() const { return plan_.rank < 0; }

 private:
  using Values = SimLinks::Values;

  void depart() override {
    if (life_.job_rank >= 0) links_.lose(life_.job_rank);
    leave_place();
  }
  void leave_place() {
    if (plan_.host == nullptr || *plan_.host != plan_.number) return;
    *plan_.host = -1;
    network_.replace_server(std::chrono::hours(24));  // unless somebody serves
  }

  Waiting<Values> together(const Comm& comm, std::string value = {}) {
    return {*this, [this, comm, round = rounds_[comm.key()]++, value = std::move(value)](SimLinks::Done done) {
              links_.meet(comm.key(), comm.job_ranks, round, comm.rank, value, std::move(done));
            }};
  }

  // ---- a life ----
  Task<bool> live() override {
    std::string last_words;
    try {
      co_await work();
    } catch (const Error& error) {
      last_words = error.what();
    }
    life_.ended = true;
    life_.last_words = last_words;
    client().leave();
    if (!last_words.empty()) vanish();
    links_.end(life_.job_rank);
    leave_place();
    co_return true;
  }
  Task<bool> work() {
    Comm comm;
    if (enlists())
      comm = co_await enlist();
    else
      comm = co_await join();
    while (comm.step < kSteps) {
      std::optional<Error> failed;
      try {
        comm = co_await step(comm);
      } catch (const Error& error) {
        failed = error;
      }
      if (!failed) continue;
      if (const auto given_up = given_up_.find(comm.key()); given_up != given_up_.end()) comm.growth = given_up->second;
      note("{}: {}", comm.key(), failed->what());
      links_.fail(comm.key(), life_.job_rank);
      Comm next = co_await shrink(comm);
      links_.leave(comm.key(), life_.job_rank);
      comm = std::move(next);
    }
    co_return true;
  }
  Task<Comm> step(Comm comm) {
    co_await pause(milliseconds(network_.draw(0, 30)));
    if (!grows(comm)) {
      co_await together(comm);
    } else {
      std::optional<Error> failed;
      Comm next = comm;
      try {
        next = co_await grow(comm);
      } catch (const Error& error) {
        failed = error;
      }
      life_.failed_growths += failed ? 1 : 0;
      if (failed) note("grow: {}", failed->what());
      if (failed && links_.failed(comm.key())) throw Error(*failed);
      if (next.key() != comm.key()) links_.leave(comm.key(), life_.job_rank);
      comm = std::move(next);
    }
    ++comm.step;
    co_return comm;
  }
  bool grows(const Comm& comm) const {
    return std::hash<std::string>{}(fmt::format("{}/{}/{}", plan_.seed, comm.key(), comm.step)) % 4 == 0;
  }

  Task<Comm> join() {
    proto::Request request;
    proto::Join& join = *request.mutable_join();
    join = introduction();
    join.set_rank(plan_.rank);
    join.set_world_size(plan_.world_size);
    const proto::Reply reply = co_await call(request);
    be_member(join, reply.membership());
    Comm comm{.rank = static_cast<int>(reply.membership().rank())};
    for (int rank = 0; rank < plan_.world_size; ++rank) comm.job_ranks.push_back(rank);
    life_.job_rank = comm.rank;
    life_.job_ranks.insert(life_.job_rank);
    comm.step = co_await meet_first(comm);
    co_return comm;
  }
  // As often as those fail who let it join (runtime/communicator.cpp, join_at).
  Task<Comm> enlist() {
    for (;;) {
      std::optional<Error> failed;
      Comm comm;
      try {
        comm = co_await enlist_once();
      } catch (const Error& error) {
        failed = error;
      }
      if (!failed) co_return comm;
      if (failed->error_code() != ErrorCode::peer_lost && failed->error_code() != ErrorCode::aborted)
        throw Error(*failed);
      note("{}; it waits to join again", failed->what());
      links_.give_up(comm_that_failed_, life_.job_rank);  // it has left
      ++life_.tries;
      client().leave();
      add_client().start();
    }
  }
  Task<Comm> enlist_once() {
    proto::Request request;
    proto::Join& join = *request.mutable_join();
    join = introduction();
    join.set_enlists(true);
    const proto::Reply reply = co_await call(request);
    be_member(join, reply.membership());
    Comm comm = growth_of(reply.membership());
    comm_that_failed_ = comm.key();
    comm.rank = static_cast<int>(reply.membership().rank());
    life_.job_rank = comm.job_ranks[static_cast<std::size_t>(comm.rank)];
    life_.job_ranks.insert(life_.job_rank);
    comm.step = 1 + co_await meet_growth_in_time(comm, Time::max());
    co_await together(comm);
    co_return comm;
  }
  proto::Join introduction() {
    proto::Join join;
    join.set_local_rank(-1);
    join.set_node("node" + std::to_string(std::max(plan_.rank, 0) % 2));
    join.set_host("host");
    join.set_lease_ms(static_cast<std::uint32_t>(kLease.count()));
    join.set_instance(fmt::format("process{}.{}", plan_.number, clients_.size()));
    client().keep_lease();
    return join;
  }
  // Of a server that may come back, or whose place another rank may take.
  void be_member(proto::Join join, const proto::Membership& given) {
    if (!given.of_rank_0()) return client().is_member(std::move(join), given);
    place_ = SimClient::again(std::move(join), given);
  }
  // Where rank 0 served and is gone, whoever comes first serves (runtime/place_store.cpp).
  Task<proto::Reply> ask_survivors(proto::Request request, Time deadline) {
    for (;;) {
      std::optional<Error> failed;
      try {
        co_return co_await call(request, deadline);
      } catch (const Error& error) {
        failed = error;
      }
      if (plan_.host == nullptr || failed->error_code() != ErrorCode::peer_lost || failed->culprit() >= 0)
        throw Error(*failed);
      try {
        co_await meet_again(deadline);
        failed.reset();
      } catch (const Error& error) {
        failed = error;
      }
      if (failed && failed->error_code() != ErrorCode::peer_lost) throw Error(*failed);
    }
  }
  Task<bool> meet_again(Time deadline) {
    if (!network_.has_server()) {
      network_.serve();
      *plan_.host = plan_.number;
      note("it serves");
    }
    const auto written = add_client().inherit(*clients_[clients_.size() - 2]);
    clients_[clients_.size() - 2]->leave();
    client().start();
    client().keep_lease();
    proto::Request request;
    *request.mutable_join() = place_;
    request.mutable_join()->set_instance(fmt::format("process{}.{}", plan_.number, clients_.size()));
    co_await call(request, deadline);
    for (const proto::Told& told : written) {
      proto::Request telling;
      *telling.mutable_told() = told;
      co_await call(telling, deadline);
    }
    co_return true;
  }
  static Comm growth_of(const proto::Membership& given) {
    Comm comm{.name = given.growth(), .generation = given.growth_generation()};
    comm.job_ranks.assign(given.job_ranks().begin(), given.job_ranks().end());
    return comm;
  }

  // ---- communicators that are made over the server ----
  proto::Request exchange(const Comm& comm, const std::string& name, const std::string& value = {}) const {
    proto::Request request;
    proto::Gather& gather = *request.mutable_exchange();
    gather.set_name(comm.key() + "/" + name);
    gather.set_index(static_cast<std::uint32_t>(comm.rank));
    gather.set_participants(static_cast<std::uint32_t>(comm.job_ranks.size()));
    gather.set_value(value);
    return request;
  }
  // The step at which the furthest of them was.
  Task<int> meet(Comm comm, Time deadline) {
    const proto::Reply said = co_await call(exchange(comm, "cards", std::to_string(comm.step)), deadline);
    co_await pause(milliseconds(network_.draw(0, 20)));
    co_await call(exchange(comm, "made"), deadline);
    life_.made[comm.key()] = comm.job_ranks;
    int step = 0;
    for (const std::string& value : said.values()) step = std::max(step, std::stoi(value));
    note("{} of {}", comm.key(), fmt::join(comm.job_ranks, ","));
    co_return step;
  }
  // Nobody tells the server that it has the first one (comm/setup/connect.cpp).
  Task<int> meet_first(Comm comm) {
    std::optional<Error> failed;
    try {
      co_await call(exchange(comm, "cards"));
      co_await pause(milliseconds(network_.draw(0, 20)));
      co_await call(exchange(comm, "shared"));
      co_await pause(milliseconds(network_.draw(0, 20)));
      co_await make_connections(comm);
    } catch (const Error& error) {
      failed = error;
    }
    if (failed) {
      failed = co_await cause_of(*failed, comm.key() + "/lost");
      life_.blamed = failed->culprit();
      life_.failed_at_first = true;
      // The others are to hear of it (runtime/place_store.hpp).
      if (plan_.host != nullptr && *plan_.host == plan_.number) co_await pause(milliseconds(500));
      throw Error(*failed);
    }
    life_.made[comm.key()] = comm.job_ranks;
    note("{} of {}", comm.key(), fmt::join(comm.job_ranks, ","));
    co_return 0;
  }
  Task<bool> make_connections(Comm comm) {
    const Time begun = network_.now();
    links_.come(comm.key(), life_.job_rank);
    while (!links_.has_all(comm.key(), life_.job_rank, comm.job_ranks)) {
      co_await pause(milliseconds(100));
      life_.first = std::chrono::floor<milliseconds>(network_.now() - begun);
      if (life_.first > kPatienceOfMembers) throw Error(ErrorCode::timeout, "some had not come by the deadline");
      for (const int rank : comm.job_ranks)
        if (is_neighbour(rank) && links_.is_gone(comm.key(), rank, true))
          throw Error(ErrorCode::peer_lost, fmt::format("rank {} ended while the ranks met", rank), rank);
      proto::Request word;
      word.mutable_try_get()->set_key(comm.key() + "/lost");
      if (const proto::Reply said = co_await call(word); said.found()) throw told(said.value());
      proto::Request question;
      question.mutable_loss();
      co_await call(question);
    }
    co_return true;
  }
  // Whom whoever failed first has missed; or it gave up itself, which it says.
  Task<Error> cause_of(Error error, std::string key) {
    const bool misses = error.culprit() >= 0;
    if (!misses && error.error_code() == ErrorCode::timeout) co_return error;
    proto::Request word;
    word.mutable_compare_and_set()->set_key(key);
    word.mutable_compare_and_set()->set_expect_absent(true);
    word.mutable_compare_and_set()->set_desired(std::to_string(misses ? error.culprit() : life_.job_rank));
    for (const bool writes : {true, false}) {
      std::optional<Error> of_store;
      try {
        if (!writes) word.mutable_try_get()->set_key(key);
        const proto::Reply said = co_await call(word);
        if (!writes && misses && said.found()) co_return told(said.value());
      } catch (const Error& gone) {
        of_store = gone;
      }
      if (of_store) note("{}", of_store->what());
      if (of_store && of_store->error_code() != ErrorCode::peer_lost) break;
    }
    co_return error;
  }
  static Error told(const std::string& culprit) {
    return {ErrorCode::peer_lost, fmt::format("rank {} was missed by another", culprit), std::stoi(culprit)};
  }
  Task<int> meet_growth(Comm comm, Time deadline) {
    std::optional<Error> failed;
    int step = 0;
    try {
      step = co_await meet(comm, deadline);
    } catch (const Error& error) {
      failed = error;
    }
    if (!failed) co_return step;
    proto::Request request;
    request.mutable_give_up()->set_growth(comm.key());
    fill(*request.mutable_give_up()->mutable_why(), *failed);
    client().call(request, kPatienceOfMembers, {});
    throw Error(*failed);
  }
  Task<int> meet_growth_in_time(Comm comm, Time deadline) {
    const Time begun = network_.now();
    std::optional<Error> failed;
    int step = 0;
    try {
      step = co_await meet_growth(comm, deadline);
    } catch (const Error& error) {
      failed = error;
    }
    note_duration("growing to " + comm.key(), begun);
    if (failed) throw Error(*failed);
    co_return step;
  }

  Task<Comm> grow(Comm comm) {
    const Time deadline = network_.now() + kPatienceOfMembers;
    std::optional<Error> failed;
    std::string word;
    Comm next;
    if (comm.rank == 0) {
      try {
        next = co_await admit(comm, deadline);
        word = next.job_ranks.empty()
                   ? ""
                   : fmt::format("{} {} {}", next.name, next.generation, fmt::join(next.job_ranks, " "));
      } catch (const Error& error) {
        word = "failed";
      }
    }
    Values said;
    try {
      said = co_await together(comm, word);
    } catch (const Error& error) {
      failed = error;
    }
    if (failed && !next.job_ranks.empty()) {
      proto::Request request;
      request.mutable_give_up()->set_growth(next.key());
      fill(*request.mutable_give_up()->mutable_why(), *failed);
      client().call(request, kPatienceOfMembers, {});
    }
    if (failed) throw Error(*failed);
    if (said[0] == "failed") throw Error(ErrorCode::timeout, "nobody was let in");
    if (said[0].empty()) co_return comm;
    std::istringstream in(said[0]);
    next = Comm{.job_ranks = {}, .rank = comm.rank, .step = comm.step};
    in >> next.name >> next.generation;
    for (int rank = 0; in >> rank;) next.job_ranks.push_back(rank);
    tell_missing(comm, next.key(), true, 0);
    try {
      next.step = co_await meet_growth_in_time(next, deadline);
    } catch (const Error& error) {
      failed = error;
    }
    told_.insert(next.key());
    if (plan_.dies_agreeing) network_.after(milliseconds(network_.draw(0, 2)), [this] { die(false); });
    Values ends;
    std::optional<Error> unheard;
    try {
      ends = co_await together(comm, failed ? "failed" : "");
    } catch (const Error& error) {
      unheard = error;
    }
    if (unheard) {  // others may have heard all
      given_up_[comm.key()] = next.key();
      links_.fail(next.key(), life_.job_rank);
      throw Error(*unheard);
    }
    const bool all_have_it = std::ranges::all_of(ends, &std::string::empty);
    if (!all_have_it) {
      links_.fail(next.key(), life_.job_rank);  // it has left
      throw Error(failed ? *failed : Error(ErrorCode::aborted, "another rank could not grow"));
    }
    ++life_.growths;
    if (plan_.dies_grown) {
      die(false);
      co_await never();
    }
    try {
      co_await together(next);
    } catch (const Error& error) {  // a rank of the new one is lost, which its next step says
      note("{}: {}", next.key(), error.what());
      next.growth = next.key();
      next.smaller = std::make_shared<Comm>(comm);
    }
    if (next.growth.empty()) life_.grown.insert(next.key());
    co_return next;
  }
  // All that wait, or so many of them.
  Task<Comm> admit(Comm comm, Time deadline) {
    const auto joiners = static_cast<std::uint32_t>(comm.step % 2);
    deadline = std::min(deadline, network_.now() + kPatienceOfMembers / 4);
    for (;;) {
      if (links_.failed(comm.key())) throw Error(ErrorCode::peer_lost, "its communicator has failed");
      proto::Request request;
      proto::Admit& admission = *request.mutable_admit();
      for (const int rank : comm.job_ranks) admission.add_members(static_cast<std::uint32_t>(rank));
      admission.set_joiners(joiners);
      admission.set_generation(comm.generation + 1);
      std::optional<Error> failed;
      Comm next;
      const Time until = std::min(deadline, network_.now() + milliseconds(100));
      try {
        const proto::Reply reply = co_await call(request, until);
        next = growth_of(reply.membership());
      } catch (const Error& error) {
        failed = error;
      }
      if (!failed) co_return next;
      if (failed->error_code() != ErrorCode::timeout || until == deadline) throw Error(*failed);
    }
  }

  Task<Comm> shrink(Comm comm) {
    const Time begun = network_.now(), deadline = begun + kPatienceOfMembers;
    std::size_t before = 0;
    int again = 0;
    for (int tries = 0;; ++tries) {
      Comm next{.name = comm.name + (tries > 0 ? fmt::format("~{}", tries) : ""),
                .generation = comm.generation + 1,
                .job_ranks = {},
                .step = comm.step};
      tell_missing(comm, next.key(), false, 0);
      proto::Request request;
      proto::Survive& survive = *request.mutable_survivors();
      survive.set_name(next.key());
      survive.set_index(static_cast<std::uint32_t>(comm.rank));
      for (const int rank : comm.job_ranks) survive.add_members(static_cast<std::uint32_t>(rank));
      survive.set_growth(comm.growth);
      if (comm.smaller) {
        survive.set_instead(fmt::format("{}@{}", comm.smaller->name, comm.smaller->generation + 1));
        survive.set_smaller(static_cast<std::uint32_t>(comm.smaller->job_ranks.size()));
        Comm members = comm;
        members.job_ranks.resize(comm.smaller->job_ranks.size());
        tell_missing(members, survive.instead(), false, 0);
      }
      const proto::Reply reply = co_await ask_survivors(request, deadline);
      told_.insert(survive.instead());
      if (comm.smaller && reply.gave_up() == comm.growth) {
        note("{} was given up", comm.growth);
        ++life_.taken_back;
        const int step = comm.step;
        comm = Comm(*comm.smaller);
        comm.step = step;
        comm.growth = reply.gave_up();
        next.name = comm.name;
        next.generation = comm.generation + 1;
        tries = 0;
        before = 0;
      }
      if (!comm.growth.empty()) (comm.smaller ? life_.grown : life_.not_grown).insert(comm.growth);
      for (const std::uint32_t index : reply.survivors()) next.job_ranks.push_back(comm.job_ranks.at(index));
      life_.decided[next.key()] = next.job_ranks;
      next.rank = static_cast<int>(std::ranges::find(next.job_ranks, life_.job_rank) - next.job_ranks.begin());
      ++life_.shrinks;
      std::optional<Error> failed;
      try {
        next.step = co_await meet(next, deadline);
      } catch (const Error& error) {
        failed = error;
      }
      told_.insert(next.key());
      note_duration("shrinking to " + next.key(), begun);
      if (!failed) co_return next;
      note("{}: {}", next.key(), failed->what());
      links_.fail(next.key(), life_.job_rank);  // it has left those that had it already
      const bool fewer = before == 0 || next.job_ranks.size() < before;
      if (failed->error_code() != ErrorCode::peer_lost || (!fewer && ++again > 8)) throw Error(*failed);
      before = next.job_ranks.size();
    }
  }
  // Whom the links have lost, until it is known who survived, or whether all have grown (comm/setup/absences.cpp).
  void tell_missing(const Comm& comm, const std::string& key, bool grows, std::size_t told) {
    if (dead_ || life_.ended || told_.contains(key)) return;
    proto::Request request;
    request.mutable_missing()->set_name(key);
    request.mutable_missing()->set_growth(grows);
    for (std::size_t i = 0; i < comm.job_ranks.size(); ++i)
      if (links_.is_gone(comm.key(), comm.job_ranks[i], is_neighbour(comm.job_ranks[i])))
        request.mutable_missing()->add_indices(static_cast<std::uint32_t>(i));
    const auto found = static_cast<std::size_t>(request.missing().indices_size());
    if (found > told) client().call(request, kPatienceOfMembers, {});
    network_.after(milliseconds(100), [this, comm, key, grows, found] { tell_missing(comm, key, grows, found); });
  }

  // Ranks of a job whose rank 0 serves share a host here: on another one nobody could take its place.
  bool is_neighbour(int job_rank) const { return plan_.host != nullptr || job_rank % 2 == life_.job_rank % 2; }
  SimLinks& links_;
  Plan plan_;
  std::string comm_that_failed_;
  proto::Join place_;  // with which it comes again
  std::map<std::string, int> rounds_{};
  std::set<std::string> told_{};
  std::map<std::string, std::string> given_up_{};  // growths, by what grew
};

}  // namespace rondo::rendezvous::test
