// SPDX-License-Identifier: Apache-2.0
// A rank of a communicator that grows, or a process that joins it: grower ROLE PLACE STEP... What happens, it says.
// ROLE: "R/N" for a rank, "env" for one whose launcher says so, "threads" for one of a world of its own; "spare" joins,
// "brief" for 300 ms only, "spare on sim" with another device, "rank 1 spare" with a rank. PLACE: a url.
// STEPs: "lose" reduces until a rank is lost, and shrinks; "grow=N" grows to N ranks; "take=N" does, and "try=N" within
// 300 ms, and they say what came of it; "poll" grows by those who wait now; "await" polls until somebody has come;
// "all" takes rank 0's state and reduces over everybody; "before" reduces over the communicator that grew; "where" says
// a launcher's variables; "until=FILE" waits for a file. Where ranks die meanwhile: "stand=N" grows to N ranks, and
// shrinks and grows again, until all of them are in a barrier; "part=N" stays out of that. What follows the first
// "joiner" is for the first process that a launcher starts in the place of a lost rank, what follows the second one for
// the second, and so on.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

using rondo::Communicator;
using Clock = std::chrono::steady_clock;
constexpr std::string_view kJoiner = "joiner";

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

struct State {
  std::optional<Communicator> comm{}, before{};
  std::optional<Clock::time_point> lost_at{};
};

void lose(State& state) {
  std::vector<int> ones(100'000, 1);
  try {
    for (;;) state.comm->all_reduce(ones, rondo::ReduceOp::max);
  } catch (const rondo::Error& error) {
    state.lost_at = Clock::now();
    say(fmt::format("lost {}", error.culprit()));
  }
  state.comm = state.comm->shrink();
}

bool grow(State& state, int world_size, std::chrono::milliseconds timeout = {}) {
  Communicator larger = state.comm->grow(world_size, timeout);
  if (!larger) return false;
  state.before = std::move(state.comm);
  state.comm = std::move(larger);
  return true;
}

void try_to_grow(State& state, int world_size, std::chrono::milliseconds timeout) {
  say("growing");
  try {
    grow(state, world_size, timeout);
    say("grown");
  } catch (const rondo::Error& error) {
    say(fmt::format("refused {} {}: {}", error.code().message(), error.culprit(), error.what()));
  }
}

void await_joiners(State& state) {
  const auto until = Clock::now() + std::chrono::seconds(20);
  while (!grow(state, 0)) {
    if (Clock::now() > until) throw std::runtime_error("nobody came");
  }
}

void reduce(Communicator& comm) {
  std::vector<int> ones(1000, 1);
  comm.all_reduce(ones, rondo::ReduceOp::sum);
}

bool has_failed(Communicator& comm) {
  try {
    comm.check();
    return false;
  } catch (const rondo::Error&) {
    return true;
  }
}

void stand(State& state, int world_size) {
  for (;;) {
    try {
      if (state.comm->world_size() < world_size) {
        say("growing");
        grow(state, world_size);
      }
      say("grown");
      reduce(*state.comm);
      return state.comm->barrier();
    } catch (const rondo::Error& error) {
      const bool lost =
          error.error_code() == rondo::ErrorCode::peer_lost || error.error_code() == rondo::ErrorCode::aborted;
      if (!lost) throw;
      say(fmt::format("without {}: {}", error.culprit(), error.what()));
    }
    if (has_failed(*state.comm)) state.comm = state.comm->shrink();
  }
}

void part(State& state, int world_size) {
  if (state.comm->world_size() < world_size) {
    say("growing");
    grow(state, world_size);
  }
  reduce(*state.comm);
  ::pause();
}

void all(State& state) {
  const int n = state.comm->world_size();
  std::vector<int> parameters(1000, state.comm->rank() == 0 ? 77 : -1);
  state.comm->broadcast(parameters, 0);
  std::vector<int> ones(100'000, 1);
  state.comm->all_reduce(ones, rondo::ReduceOp::sum);
  std::vector<int> node_of_rank(static_cast<std::size_t>(n));
  state.comm->all_gather(std::array{state.comm->node()}, node_of_rank);
  if (state.lost_at && state.comm->rank() == 0) {
    const std::chrono::duration<double, std::milli> took = Clock::now() - *state.lost_at;
    say(fmt::format("regrown_ms {:.1f}", took.count()));
  }
  const int nodes = 1 + *std::max_element(node_of_rank.begin(), node_of_rank.end());
  say(fmt::format("rank {} of {} on {} node(s): sum {} {}, state {}", state.comm->rank(), n, nodes, ones.front(),
                  ones.back(), parameters.back()));
}

void before(State& state) {
  std::vector<int> ones(1000, 1);
  state.before->all_reduce(ones, rondo::ReduceOp::sum);
  say(fmt::format("before: rank {} of {}, sum {}", state.before->rank(), state.before->world_size(), ones.front()));
}

void await_file(const std::string& name) {
  const auto until = Clock::now() + std::chrono::seconds(20);
  while (::access(name.c_str(), F_OK) != 0)
    if (Clock::now() > until) throw std::runtime_error("no file came");
}

void take(State& state, const std::string& step) {
  const auto equals = step.find('=');
  const std::string verb = step.substr(0, equals);
  const int number = equals == std::string::npos ? 0 : std::atoi(step.c_str() + equals + 1);
  if (verb == "where")
    return say(fmt::format("variables {} {}", std::getenv("RONDO_RENDEZVOUS"), std::getenv("RONDO_JOB")));
  if (verb == "lose") return lose(state);
  if (verb == "grow") return void(grow(state, number));
  if (verb == "try") return try_to_grow(state, number, std::chrono::milliseconds(300));
  if (verb == "take") return try_to_grow(state, number, std::chrono::seconds(20));
  if (verb == "stand") return stand(state, number);
  if (verb == "part") return part(state, number);
  if (verb == "poll") return say(grow(state, 0) ? "somebody" : "nobody");
  if (verb == "await") return await_joiners(state);
  if (verb == "all") return all(state);
  if (verb == "before") return before(state);
  if (verb == "until") return await_file(step.substr(equals + 1));
  throw std::runtime_error("no such step: " + step);
}

// Of the steps: 0 for a rank, and the number of a replacement.
int own_part() {
  const char* const joins_as = std::getenv("RONDO_JOINS_AS");
  return joins_as == nullptr ? 0 : std::atoi(std::strchr(joins_as, '.') + 1);
}

Communicator enter(const std::string& role, const std::string& place) {
  const char* node = std::getenv("GROWER_NODE");
  rondo::Options options{.join_timeout = std::chrono::seconds(20), .node = node == nullptr ? "" : node};
  if (role == "env") return Communicator::from_environment(options);
  if (role == "spare on sim") options.device = rondo::Device::sim();
  if (role == "brief") options.join_timeout = std::chrono::milliseconds(300);
  if (role == "threads") return std::move(Communicator::local(1).front());
  if (role == "rank 1 spare") return Communicator::join({.rank = 1, .url = place}, options);
  if (role == "brief" || role.starts_with("spare")) return Communicator::join({.url = place}, options);
  const auto slash = role.find('/');
  return Communicator::create(
      {.rank = std::atoi(role.c_str()), .world_size = std::atoi(role.c_str() + slash + 1), .url = place}, options);
}

}  // namespace

int main(int count, char** argv) {
  try {
    State state;
    say(fmt::format("starting {}", ::getpid()));
    state.comm = enter(argv[1], argv[2]);
    say(fmt::format("joined rank {} of {} as {}", state.comm->rank(), state.comm->world_size(), ::getpid()));
    for (int i = 3, part = 0, own = own_part(); i < count; ++i) {
      if (argv[i] == kJoiner)
        ++part;
      else if (part == own)
        take(state, argv[i]);
    }
    say("done");
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("error {}", error.what()));
    return 1;
  }
}
