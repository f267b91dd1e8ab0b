// SPDX-License-Identifier: Apache-2.0
// A process of a job that others leave and join: member ID PLACE [RANK WORLD_SIZE]. Without a rank it joins; PLACE is a
// url, or "env" where a launcher says all. It gathers everybody's id for ever and takes in whoever waits; without a
// rank that is lost it goes on. Says each world that it comes to, when, and what it lost. SIGTERM to any: all end.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

#include "tests/support/spoken.hpp"

namespace {

using rondo::Communicator;
volatile std::sig_atomic_t is_to_end = 0;

using rondo::test::now_us;
using rondo::test::say;

Communicator enter(int count, char** argv) {
  const std::string place = argv[2];
  const rondo::Options options{.timeout = std::chrono::seconds(60), .join_timeout = std::chrono::seconds(60)};
  if (place == "env") return Communicator::from_environment(options);
  if (count < 5) return Communicator::join({.url = place}, options);
  return Communicator::create({.rank = std::atoi(argv[3]), .world_size = std::atoi(argv[4]), .url = place}, options);
}

// Everybody's id and whether they are to end, as all of this world see it.
std::vector<int> look_round(Communicator& comm, int id, bool& ends) {
  std::vector<int> both(2 * static_cast<std::size_t>(comm.world_size())), ids;
  comm.all_gather(std::array{id, is_to_end != 0 ? 1 : 0}, both);
  for (std::size_t i = 0; i < both.size(); i += 2) {
    ids.push_back(both[i]);
    ends = ends || both[i + 1] != 0;
  }
  return ids;
}

// Until a rank is lost, or all are to end.
bool live(Communicator& comm, int id) {
  std::vector<int> known;
  for (bool ends = false;;) {
    const auto ids = look_round(comm, id, ends);
    if (ids != known) say(fmt::format("world {} {}", now_us(), fmt::join(ids, " ")));
    known = ids;
    if (ends) return false;
    if (Communicator larger = comm.grow()) return comm = std::move(larger), true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // what a program would compute
  }
}

bool has_failed(Communicator& comm) {
  try {
    comm.check();
    return false;
  } catch (const rondo::Error&) {
    return true;
  }
}

}  // namespace

int main(int count, char** argv) {
  if (count < 3) return 2;
  std::signal(SIGTERM, [](int) { is_to_end = 1; });
  const char* rank = std::getenv("RANK");
  const int id = std::string_view(argv[2]) == "env" && rank != nullptr ? std::atoi(rank) : std::atoi(argv[1]);
  try {
    say(fmt::format("starting {} {}", id, ::getpid()));
    auto comm = enter(count, argv);
    for (;;) {
      try {
        if (!live(comm, id)) break;
      } catch (const rondo::Error& error) {
        say(fmt::format("lost {} {}", now_us(), error.what()));
        const bool lost =
            error.error_code() == rondo::ErrorCode::peer_lost || error.error_code() == rondo::ErrorCode::aborted;
        if (!lost) throw;
        if (has_failed(comm)) comm = comm.shrink();
      }
    }
    say("done");
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("error {} {}", now_us(), error.what()));
    return 1;
  }
}
