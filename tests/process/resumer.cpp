// SPDX-License-Identifier: Apache-2.0
// A training that goes on from its checkpoint with any number of ranks: resumer FILE STEPS MS. The samples of a step
// are shared out among the ranks and the sums are of whole numbers, so the result is the same for every world. A step
// takes MS milliseconds. It says where it starts, each step that is kept, and the result.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

constexpr std::size_t kParameters = 1000;
constexpr std::int64_t kSamples = 24, kModulus = 1'000'003;

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(1, whole.data(), whole.size()) < 0) ::_exit(9);
}

// The step, and then the parameters.
using State = std::vector<std::int64_t>;

State load(const std::string& file) {
  State state(1 + kParameters, 0);
  std::ifstream in(file, std::ios::binary);
  if (in) in.read(reinterpret_cast<char*>(state.data()), static_cast<std::streamsize>(state.size() * sizeof state[0]));
  return state;
}

void keep(const State& state, const std::string& file) {
  const std::string next = file + ".next";
  std::ofstream out(next, std::ios::binary);
  out.write(reinterpret_cast<const char*>(state.data()), static_cast<std::streamsize>(state.size() * sizeof state[0]));
  out.close();
  std::filesystem::rename(next, file);
}

void step(rondo::Communicator& comm, State& state) {
  std::vector<std::int64_t> gradient(kParameters, 0);
  for (std::int64_t sample = comm.rank(); sample < kSamples; sample += comm.world_size())
    for (std::size_t i = 0; i < kParameters; ++i)
      gradient[i] += (state[1 + i] * (sample + 3) + state[0] * 17 + static_cast<std::int64_t>(i)) % kModulus;
  comm.all_reduce(gradient, rondo::ReduceOp::sum);
  for (std::size_t i = 0; i < kParameters; ++i) state[1 + i] = (state[1 + i] + gradient[i]) % kModulus;
  ++state[0];
}

}  // namespace

int main(int count, char** argv) {
  if (count != 4) return 2;
  const std::string file = argv[1];
  const std::int64_t steps = std::atoll(argv[2]);
  const std::chrono::milliseconds pause(std::atoll(argv[3]));
  try {
    auto comm = rondo::Communicator::from_environment(
        {.timeout = std::chrono::seconds(60), .join_timeout = std::chrono::seconds(60)});
    State state = comm.rank() == 0 ? load(file) : State(1 + kParameters, 0);
    comm.broadcast(state, 0);
    say(fmt::format("start {} rank {} of {} on node {} of {} at {} pid {}", std::getenv("TORCHELASTIC_RESTART_COUNT"),
                    comm.rank(), comm.world_size(), std::getenv("GROUP_RANK"), std::getenv("GROUP_WORLD_SIZE"),
                    state[0], ::getpid()));
    while (state[0] < steps) {
      std::this_thread::sleep_for(pause);  // as if it computed
      step(comm, state);
      if (comm.rank() == 0) keep(state, file);
      say(fmt::format("step {}", state[0]));
    }
    std::int64_t sum = 0;
    for (const std::int64_t value : state) sum = (sum * 31 + value) % kModulus;
    say(fmt::format("result {}", sum));
    return 0;
  } catch (const rondo::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
