// SPDX-License-Identifier: Apache-2.0
// A process of a short life in which somebody is killed: mortal PHASE VICTIM ID PLACE FOLDER [NODE]. Four ranks, by
// their ids, meet at PLACE, a url, and go through one phase (moments.hpp) and apart; process 4 joins them in "grow".
// Who is lost there they go on without; in "shrink" rank 3 kills itself first, and VICTIM dies while the others shrink.
// Says what it was told, whom it is with at the end, and whether a checkpoint is whole.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/rondo.hpp>
#include <rondo/trainer.hpp>

#include "tests/reliability/moments.hpp"
#include "tests/support/spoken.hpp"

namespace {

using namespace std::chrono_literals;
using rondo::Communicator;
using rondo::test::mark;
using rondo::test::now_us;
using rondo::test::say;

constexpr int kRanks = 4, kJoiner = kRanks, kNoPhase = -2;
constexpr auto kPatience = 10s;
constexpr std::size_t kShort = 8, kLong = 300'000;

struct Given {
  std::string phase;
  int victim, id;
  std::string place, folder, node;
  bool is(const char* name) const { return phase == name; }
};

class Life {
 public:
  explicit Life(Given given) : given_(std::move(given)) {}

  void go() {
    join();
    for (bool lived = given_.id == kJoiner;;) {
      try {
        if (!std::exchange(lived, true)) live();
        settle();
        break;
      } catch (const rondo::Error& error) {
        tell(error);
        if (has_failed()) comm_ = comm_.shrink();
      }
    }
    begin("farewell");
    comm_ = {};
    mark(kNoPhase);
  }
  void tell(const rondo::Error& error) const {
    say(fmt::format("error {} {} {}", now_us(), id_of(error.culprit()), error.what()));
  }

 private:
  void begin(const char* name) const {
    if (given_.is(name)) mark(rondo::test::phase_of(name));
  }
  // Where ranks join and grow, the victim may be gone before anybody has met it.
  int id_of(int rank) const {
    if (rank >= 0 && rank < static_cast<int>(ids_.size())) return ids_[static_cast<std::size_t>(rank)];
    return rank >= 0 && ids_.size() == kRanks ? kJoiner : rank;
  }
  bool has_failed() {
    try {
      comm_.check();
      return false;
    } catch (const rondo::Error&) {
      return true;
    }
  }

  void join() {
    const rondo::Options options{.timeout = kPatience, .join_timeout = kPatience, .node = given_.node};
    if (given_.id == kJoiner) {
      begin("grow");
      comm_ = Communicator::join({.url = given_.place}, options);
    } else {
      ids_.resize(kRanks);
      std::iota(ids_.begin(), ids_.end(), 0);
      begin("join");
      comm_ = Communicator::create({.rank = given_.id, .world_size = kRanks, .url = given_.place}, options);
    }
    mark(kNoPhase);
    say("joined");
  }
  void live() {
    comm_.barrier();
    if (given_.is("save")) save(1);
    begin("collectives"), begin("messages"), begin("split"), begin("save");
    if (given_.is("collectives")) call();
    if (given_.is("messages")) speak();
    if (given_.is("split")) part();
    if (given_.is("save")) save(2);
    if (given_.is("shrink")) lose();
    if (given_.is("grow")) grow();
    mark(kNoPhase);
  }
  void call() {
    for (const std::size_t count : {kShort, kLong}) {
      std::vector<float> values(count, 1.0F), all(count * kRanks);
      comm_.all_reduce(values, rondo::ReduceOp::sum);
      comm_.broadcast(values, 1);
      comm_.all_gather(std::span<const float>(values), all);
      std::vector<float> turned(all.size());
      comm_.all_to_all(std::span<const float>(all), turned);
      comm_.barrier();
    }
  }
  void speak() {
    const int world = comm_.world_size();
    for (const std::size_t count : {kShort, kLong}) {
      const std::vector<float> said(count, 1.0F);
      std::vector<float> heard(count);
      auto group = comm_.group();
      group.send(std::span(said), (comm_.rank() + 1) % world);
      group.recv(std::span(heard), (comm_.rank() + world - 1) % world);
      group.end();
    }
  }
  void part() {
    Communicator half = comm_.split(comm_.rank() % 2, comm_.rank());
    try {
      half.barrier();
    } catch (const rondo::Error& error) {  // whose rank is one of the half
      const int culprit = error.culprit() < 0 ? -1 : 2 * error.culprit() + comm_.rank() % 2;
      throw rondo::Error(error.error_code(), error.what(), culprit);
    }
  }
  void save(int value) {
    rondo::trainer::Checkpoint checkpoint;
    checkpoint.texts["value"] = std::string(kLong, static_cast<char>('0' + value));
    rondo::trainer::save_once(comm_, given_.folder + "/saved", checkpoint);
  }
  void lose() {
    if (given_.id == kRanks - 1) ::raise(SIGKILL);
    try {
      for (;;) comm_.barrier();
    } catch (const rondo::Error& error) {
      tell(error);
    }
    begin("shrink");
    comm_ = comm_.shrink();
  }
  void grow() {
    begin("grow");
    if (Communicator larger = comm_.grow(comm_.world_size() + 1, kPatience)) comm_ = std::move(larger);
  }

  // Until those who live have heard of each other, the joiner too.
  void settle() {
    for (;;) {
      std::vector<int> ids(static_cast<std::size_t>(comm_.world_size()));
      comm_.all_gather(std::span<const int>(&given_.id, 1), ids);
      ids_ = ids;
      if (!given_.is("grow") || given_.victim == kJoiner || std::ranges::find(ids_, kJoiner) != ids_.end()) break;
      grow();
    }
    if (given_.is("save") && comm_.rank() == 0) {
      const auto found = rondo::trainer::load(given_.folder + "/saved").texts.at("value");
      const bool whole = found == std::string(kLong, '1') || found == std::string(kLong, '2');
      say(fmt::format("checkpoint {}", whole ? "whole" : "broken"));
    }
    if (given_.is("save")) save(3);  // and takes away what the last writer left
    say(fmt::format("world {} {}", now_us(), fmt::join(ids_, " ")));
    comm_.barrier();
  }

  const Given given_;
  Communicator comm_{};
  std::vector<int> ids_{};
};

}  // namespace

int main(int count, char** words) {
  if (count < 6) return 2;
  Life life({words[1], std::atoi(words[2]), std::atoi(words[3]), words[4], words[5], count > 6 ? words[6] : ""});
  try {
    life.go();
    say("done");
    return 0;
  } catch (const rondo::Error& error) {
    life.tell(error);
  } catch (const std::exception& error) {
    say(fmt::format("error {} -1 {}", now_us(), error.what()));
  }
  return 1;
}
