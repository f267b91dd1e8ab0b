// SPDX-License-Identifier: Apache-2.0
// Thousands of jobs in simulated time that grow and shrink while ranks die, connections break and the server goes away
// and comes back, each with troubles that follow from its seed:
//   RONDO_SIM_SCHEDULES=1000000 rendezvous_schedules "*grow*"    so many of them
//   RONDO_SIM_SEED=4711 rendezvous_schedules "*grow*"            that one again
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>

#include "tests/rendezvous/sim_member.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/seeds.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

namespace {

constexpr std::uint64_t kLives = 20'000;
// Those who are to meet, or find out that they cannot: who does not come back to a server counts as lost after 10 s.
constexpr milliseconds kMeetWithin{15'000};
// The first of them find out sooner, from the server: a lease of 1 s, and what it leaves to come again.
constexpr milliseconds kFirstWithin{4'000};

// One job, before it runs.
class Lives {
 public:
  explicit Lives(std::uint64_t seed)
      : secret_(seed % 8 == 0 ? std::optional(kSecret()) : std::nullopt),
        rank_0_serves_(seed % 4 == 1),
        network_(seed, {.room = {.job = "sim",
                                 .is_rank_0s = rank_0_serves_,
                                 .name = "server",
                                 .come_back_within = milliseconds(seed % 3 == 0 ? 300 : 10'000)},
                        .secret = secret_,
                        .authenticate_within = milliseconds(20'000)}) {
    const std::uint64_t longest_delays_us[] = {1'000, 20'000, 100'000};
    longest_delay_us_ = longest_delays_us[draw(0, 2)];
    network_.set_longest_delay(std::chrono::microseconds(longest_delay_us_));
    const int size = static_cast<int>(draw(1, 6));
    for (int rank = 0; rank < size; ++rank) {
      const bool dies_grown = rank == 0 && rank_0_serves_ && draw(0, 2) == 0;
      start({.seed = seed, .rank = rank, .world_size = size, .dies_grown = dies_grown}, 300);
    }
    if (draw(0, 3) == 0) members_[draw(0, members_.size() - 1)]->die_agreeing();
    const int joiners = static_cast<int>(draw(0, 3));
    for (int i = 0; i < joiners; ++i) start({.seed = seed, .rank = -1}, span_ms());
    const std::uint64_t troubles = draw(0, 4);
    for (std::uint64_t i = 0; i < troubles; ++i) trouble();
    network_.run(Time{} + std::chrono::minutes(10));
  }

  // What must hold, whatever has happened; empty: it does.
  std::string fault() {
    std::map<std::string, std::vector<int>> made, decided;
    for (const auto& member : members_) {
      const Life& life = member->life();
      if (!member->dead() && !life.ended) return fmt::format("{} never ends", who(*member));
      if (life.longest > kMeetWithin + held_up_)
        return fmt::format("{} was {} ms at {}", who(*member), life.longest.count(), life.longest_what);
      if (life.first > (server_was_lost() ? kMeetWithin : kFirstWithin) + held_up_)
        return fmt::format("{} made its first connections for {} ms", who(*member), life.first.count());
      if (!server_was_lost() && life.blamed >= 0 && !members_[static_cast<std::size_t>(life.blamed)]->troubled())
        return fmt::format("{} blames rank {}, which has no trouble", who(*member), life.blamed);
      for (const auto& [communicators, known] : {std::pair(&life.made, &made), std::pair(&life.decided, &decided)}) {
        for (const auto& [key, ranks] : *communicators) {
          if (server_was_lost()) continue;  // which had told some alone whom it counted
          if (known->emplace(key, ranks).first->second != ranks)
            return fmt::format("{} knows other ranks of {}", who(*member), key);
          if (!is_one_of(life, ranks)) return fmt::format("{} is in {} and none of its ranks", who(*member), key);
        }
      }
    }
    if (network_.core().waiting_count() != 0) return "requests are left";
    for (const auto& member : members_)
      for (const std::string& growth : member->life().grown)
        if (any([&](const Life& life) { return life.not_grown.contains(growth); }))
          return fmt::format("{} went on with {}, and others without", who(*member), growth);
    for (const auto& [key, ranks] : decided)
      for (const auto& member : members_)
        if (was_left_out(*member, key, ranks, made)) return fmt::format("{} is left out of {}", who(*member), key);
    for (const auto& member : members_)
      if (std::string sentence = fault_of(*member); !sentence.empty()) return sentence;
    return {};
  }
  std::string tell() const {
    std::string text;
    for (const auto& member : members_)
      text += fmt::format("{}{}:{}\n  ends: {}\n", who(*member), member->troubled() ? " (troubled)" : "",
                          member->life().log, member->life().last_words);
    return text + events_;
  }
  bool shrank() const {
    return any([](const Life& life) { return life.shrinks > 0; });
  }
  bool grew() const {
    return any([](const Life& life) { return life.growths > 0; });
  }
  bool failed_to_grow() const {
    return any([](const Life& life) { return life.failed_growths > 0; });
  }
  // A rank had a larger communicator that another member had given up.
  bool took_back() const {
    return any([](const Life& life) { return life.taken_back > 0; });
  }
  bool server_was_lost() const {
    return server_was_lost_ ||
           (rank_0_serves_ && (host_ > 0 || members_.front()->troubled() || members_.front()->life().failed_at_first));
  }
  bool joined_again() const {
    return any([](const Life& life) { return life.tries > 0; });
  }
  bool came_back() const { return breaks_ > 0; }
  // One was lost after the last exchange of the first communicator, and before all had connections with it.
  bool failed_at_first() const {
    return any([](const Life& life) { return life.blamed >= 0; });
  }

 private:
  static const Secret& kSecret() {
    static const Secret one = Secret::generate();
    return one;
  }
  static std::string who(const SimMember& member) {
    return fmt::format("{} {}", member.enlists() ? "joiner" : "rank", member.life().job_rank);
  }
  static bool is_one_of(const Life& life, const std::vector<int>& ranks) {
    return std::ranges::any_of(ranks, [&](int rank) { return life.job_ranks.contains(rank); });
  }
  template <class Holds>
  bool any(Holds holds) const {
    return std::ranges::any_of(members_, [&](const auto& member) { return holds(member->life()); });
  }
  std::uint64_t draw(std::uint64_t low, std::uint64_t high) { return network_.draw(low, high); }
  // So that it falls into the time that the job takes.
  std::uint64_t span_ms() const { return 500 + 40 * longest_delay_us_ / 1000; }

  void start(SimMember::Plan plan, std::uint64_t within_ms) {
    plan.number = static_cast<int>(members_.size());
    if (rank_0_serves_) plan.host = &host_;
    SimMember* const made = members_.emplace_back(std::make_unique<SimMember>(network_, links_, secret_, plan)).get();
    network_.after(milliseconds(draw(0, within_ms)), [made] { made->start(); });
  }
  SimMember& anyone() { return *members_[draw(0, members_.size() - 1)]; }
  void on(milliseconds when, const char* what, std::function<void(SimMember&)> befalls) {
    network_.after(when, [this, what, befalls = std::move(befalls)] {
      SimMember& one = anyone();
      note(fmt::format("{} of {}", what, who(one)));
      befalls(one);
    });
  }
  void note(const std::string& what) {
    events_ +=
        fmt::format("{:6} ms: {}\n", std::chrono::floor<milliseconds>(network_.now().time_since_epoch()).count(), what);
  }

  // Another one comes at once, or later; then who dies meanwhile tells nobody.
  void lose_server() {
    const milliseconds away(draw(0, 1) == 0 ? 0 : draw(1, 3000));
    server_was_lost_ = true;
    held_up_ += away;
    note(fmt::format("the server is lost for {} ms", away.count()));
    network_.replace_server(away);
    const std::uint64_t deaths = away.count() == 0 ? 0 : draw(0, 2);
    for (std::uint64_t i = 0; i < deaths; ++i)
      on(milliseconds(draw(0, static_cast<std::uint64_t>(away.count()))), "death without a server",
         [this](SimMember& one) { one.die(draw(0, 1) == 0); });
  }
  void trouble() {
    const milliseconds when(draw(0, span_ms()));
    switch (rank_0_serves_ ? 0 : draw(0, 6)) {  // a client of rank 0's server does not come back to it
      case 0:
      case 1:
        return on(when, "death", [this](SimMember& one) { one.die(draw(0, 1) == 0); });
      case 2:
        return on(when, "silence", [](SimMember& one) { one.fall_silent(); });
      case 3:
      case 4:
        return on(when, "a broken connection", [this](SimMember& one) {
          ++breaks_;
          one.lose_connection(draw(0, 1) == 0);
        });
      case 5:
        return on(when, "a partition", [this](SimMember& one) {
          ++breaks_;
          const milliseconds duration(draw(1, 3000));
          held_up_ += duration;
          one.hold_up(duration);
        });
      case 6:
        return network_.after(when, [this] {
          if (draw(0, 2) != 0) {
            stands_still_ = true;
            note("the server stands still");
            const milliseconds duration(draw(1, 5000));
            held_up_ += duration;
            return network_.freeze(network_.now() + duration);
          }
          lose_server();
        });
    }
  }

  // Of survivors, without having had any trouble, though it was one of those who asked themselves that.
  bool was_left_out(const SimMember& member, const std::string& key, const std::vector<int>& ranks,
                    const std::map<std::string, std::vector<int>>&) const {
    const Life& life = member.life();
    return !member.troubled() && !server_was_lost() && !stands_still_ && life.made.contains(key) &&
           !is_one_of(life, ranks);
  }
  std::string fault_of(const SimMember& member) const {
    const Life& life = member.life();
    if (life.last_words.empty() || member.troubled()) return {};
    const std::string sentence = fmt::format("{}, which has no trouble, ends with: {}", who(member), life.last_words);
    const bool times_out = life.last_words.find("deadline") != std::string::npos ||
                           life.last_words.find("does not answer") != std::string::npos;
    const bool any_trouble = std::ranges::any_of(members_, [](const auto& one) { return one->troubled(); });
    if (server_was_lost()) return {};  // with what it had answered to some alone, and not kept
    if (member.enlists()) return times_out || any_trouble || stands_still_ ? std::string() : sentence;
    const bool has_met = life.made.contains("world@0");
    if (!has_met)
      return any_trouble && (!times_out || stands_still_ || life.last_words.starts_with("missing ranks"))
                 ? std::string()
                 : sentence;
    return sentence;
  }

  std::optional<Secret> secret_;
  const bool rank_0_serves_;
  int host_ = 0;  // the number of the process that serves, where rank 0 does at first
  Network network_;
  SimLinks links_{network_};
  std::uint64_t longest_delay_us_ = 0;
  std::vector<std::unique_ptr<SimMember>> members_;
  std::string events_;
  int breaks_ = 0;
  milliseconds held_up_{0};  // by all troubles together
  bool server_was_lost_ = false, stands_still_ = false;
};

}  // namespace

TEST_CASE("jobs that grow and shrink agree and go on, whatever befalls ranks, network and server, and nobody hangs") {
  const auto [first, last, one] = rondo::test::Seeds::given(kLives);
  std::uint64_t shrunk = 0, grown = 0, not_grown = 0, taken_back = 0, joined_again = 0, servers = 0, came_back = 0,
                at_first = 0;
  int faults = 0;
  for (std::uint64_t seed = first; seed <= last && faults < 10; ++seed) {
    Lives lives(seed);
    const std::string fault = lives.fault();
    if (one) std::cout << lives.tell();
    INFO("RONDO_SIM_SEED=" << seed << ": " << fault);
    CHECK(fault.empty());
    faults += fault.empty() ? 0 : 1;
    shrunk += lives.shrank();
    grown += lives.grew();
    not_grown += lives.failed_to_grow();
    taken_back += lives.took_back();
    joined_again += lives.joined_again();
    servers += lives.server_was_lost();
    came_back += lives.came_back();
    at_first += lives.failed_at_first();
  }
  std::cout << fmt::format(
      "{} jobs: {} shrank, {} grew and {} could not once, in {} some had grown and came back to those who had not, in "
      "{} "
      "a process joined again, {} lost their server, in {} a connection broke, in {} a rank was lost to the first "
      "communicator\n",
      last - first + 1, shrunk, grown, not_grown, taken_back, joined_again, servers, came_back, at_first);
  if (one) return;
  for (const std::uint64_t happened : {shrunk, grown, not_grown, joined_again, servers, came_back})
    CHECK(happened > (last - first) / 100);
  CHECK(taken_back > (last - first) / 1000);
  CHECK(at_first > (last - first) / 200);
}
