// SPDX-License-Identifier: Apache-2.0
// One rank, as the environment or a url says: prints "rank of world_size: sum of all ranks". Of the environment
// besides: LABEL, a number that all ranks of a job have alike (exit code 3: a mixed world); JOIN_MS; HOLD=1, stay in
// the world until killed; FORK=1, leave a child behind that lives on, and print its pid.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include <rondo/rondo.hpp>

namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(1, whole.data(), whole.size()) < 0) ::_exit(9);
}

bool is_mixed(rondo::Communicator& world) {
  std::array<int, 1> least = {number("LABEL", 0)}, most = least;
  world.all_reduce(least, rondo::ReduceOp::min);
  world.all_reduce(most, rondo::ReduceOp::max);
  return least != most;
}

void leave_child() {
  const pid_t child = ::fork();
  if (child != 0) return say(fmt::format("child {}", child));
  for (const int stream : {0, 1, 2}) ::close(stream);
  ::pause();
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    rondo::Rendezvous where;
    if (argc == 4) where = {.rank = std::atoi(argv[2]), .world_size = std::atoi(argv[3]), .url = argv[1]};
    rondo::Options options;
    options.join_timeout = std::chrono::milliseconds(number("JOIN_MS", 20'000));
    for (int turn = 0; turn < (argc == 1 ? 2 : 1); ++turn) {  // a second world from the same environment
      rondo::Communicator world = rondo::Communicator::create(where, options);
      if (is_mixed(world)) return 3;
      std::array<int, 1> sum = {world.rank()};
      world.all_reduce(sum, rondo::ReduceOp::sum);
      say(fmt::format("{} of {}: {}", world.rank(), world.world_size(), sum[0]));
      if (number("FORK", 0) == 1) leave_child();
      if (number("HOLD", 0) == 1) ::pause();
    }
    return 0;
  } catch (const rondo::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
