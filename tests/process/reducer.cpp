// SPDX-License-Identifier: Apache-2.0
// A rank of a job: reducer MODE [BAD_RANK]. It announces itself, joins, and reduces; BAD_RANK does what MODE says.
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(1, whole.data(), whole.size()) < 0) ::_exit(9);
}

long long now_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
}

bool reduce(rondo::Communicator& communicator, std::size_t count) {
  std::vector<float> data(count, static_cast<float>(communicator.rank() + 1));
  communicator.all_reduce(data, rondo::ReduceOp::sum);
  const int world_size = communicator.world_size();
  for (const float value : data)
    if (value != static_cast<float>(world_size * (world_size + 1) / 2)) return false;
  return true;
}

void misbehave(rondo::Communicator& communicator, const std::string& mode) {
  std::vector<float> data(1000);
  std::vector<double> other_dtype(1000);
  if (mode == "count") communicator.all_reduce(std::span(data).first(999), rondo::ReduceOp::sum);
  if (mode == "dtype") communicator.all_reduce(other_dtype, rondo::ReduceOp::sum);
  if (mode == "op") communicator.all_reduce(data, rondo::ReduceOp::max);
  if (mode == "collective") communicator.broadcast(data, 0);
  if (mode == "leave") ::_exit(0);
  if (mode == "throw") throw std::logic_error("out of paper");  // nobody catches it
}

int run(const std::string& mode, int bad_rank) {
  rondo::Options options;
  options.join_timeout = std::chrono::seconds(mode == "absent" ? 1 : 20);
  options.timeout = std::chrono::seconds(20);
  auto communicator = rondo::Communicator::from_environment(options);
  if (!reduce(communicator, 1000)) return 3;
  if (mode == "reduce") {
    const bool good = reduce(communicator, 0) && reduce(communicator, 1) && reduce(communicator, 3'000'001);
    say("sums are " + std::string(good ? "right" : "wrong"));
    return good ? 0 : 3;
  }
  if (mode == "start") {  // another program, and then a second world
    const int ended = std::system("for f in /proc/self/fd/*; do readlink $f; done | sed 's/^/holds /'");
    auto second = rondo::Communicator::from_environment(options);
    return ended == 0 && reduce(second, 1) ? 0 : 3;
  }
  say("joined " + std::to_string(::getpid()));
  if (mode != "loop" && communicator.rank() == bad_rank) misbehave(communicator, mode);
  for (;;)
    if (!reduce(communicator, mode == "loop" ? 1'000'000 : 1000)) return 3;
}

}  // namespace

int main(int, char** argv) {
  const std::string mode = argv[1];
  const int bad_rank = argv[2] != nullptr ? std::atoi(argv[2]) : -1;
  if (mode == "absent" && std::getenv("RANK") == std::to_string(bad_rank)) return 0;
  if (mode == "world") {  // a wrong one on one rank
    if (std::getenv("RANK") == std::to_string(bad_rank)) ::setenv("WORLD_SIZE", "9", 1);
  }
  try {
    return run(mode, bad_rank);
  } catch (const std::runtime_error& error) {
    say("error at " + std::to_string(now_us()) + ": " + error.what());
    return 1;
  }
}
